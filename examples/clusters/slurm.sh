#!/bin/bash
#SBATCH --job-name=ringside
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@180
#SBATCH --requeue

# One run on four nodes: the first learns, the others play. It saves when its time is over; submitted again, it
# continues. Before the first time, on a node of the cluster: .venv/bin/ray get-auth-token --generate
#
#   cd ringside && sbatch examples/clusters/slurm.sh
#
# The working directory, the run and ~/.ray/auth_token lie on a file system that all nodes share. The nodes should have
# one type of processor (--constraint), since all must compute the same bits.

set -euo pipefail

RUN=${RUN:-runs/breakout-slurm}
export PATH="$PWD/.venv/bin:$PATH" RAY_AUTH_MODE=token RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=180

if compgen -G "$RUN/checkpoints/checkpoint-*.json" > /dev/null; then
    WORDS=(--resume "$RUN")
else
    WORDS=(--game breakout --envs 384 --inference-batch 32 --round-steps 20_000 --run-dir "$RUN")
fi

HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head --lines 1)
ADDRESS="$(getent ahostsv4 "$HEAD" | awk 'NR == 1 { print $1 }'):6379"

# The first node has no CPUs for groups: learner, scribe and evaluation need them. SIGTERM ends Ray at once; launch.py
# saves first, and holds its lock until then.
srun bash -c '
    trap "" TERM
    cpus=$SLURM_CPUS_PER_TASK
    [ "$SLURM_NODEID" != 0 ] || cpus=0
    address=$1 nodes=$2 run=$3
    shift 3
    code=0
    ray symmetric-run --address "$address" --min-nodes "$nodes" --num-cpus "$cpus" -- \
        python launch.py --plain --ray "$address" "$@" || code=$?
    [ "$SLURM_NODEID" != 0 ] || python -c "if True:
        import pathlib, sys
        from shared.files.lock import wait_until_free
        wait_until_free(pathlib.Path(sys.argv[1]), 170, bool)" "$run/lock"
    exit "$code"
' symmetric-run "$ADDRESS" "$SLURM_NNODES" "$RUN" "${WORDS[@]}"
