"""Names of the two places of programs: this machine, and a Ray cluster. A job is a run: training, then evaluations."""

from ringside.cluster.placed_programs import ClusterPrograms, PlacedPrograms
from ringside.programs.local_programs import LocalPrograms

Programs = LocalPrograms | ClusterPrograms
Place = LocalPrograms | PlacedPrograms
