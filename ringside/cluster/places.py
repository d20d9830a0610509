"""Names of the two places of programs: this machine, and a Ray cluster. A job is a run: training, then evaluations."""

from ringside.cluster.local_programs import LocalPrograms
from ringside.cluster.placed_programs import ClusterPrograms, PlacedPrograms

Programs = LocalPrograms | ClusterPrograms
Place = LocalPrograms | PlacedPrograms
