"""Run directories: a new one, that of a run, and a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringside.doctor import run_directories
from shared.errors import ConfigError
from shared.files.run_file_names import CONFIG_FILE


def test_run_directories(tmp_path: Path) -> None:
    run_directories.require_run_directory(tmp_path / "new" / "run", continues=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        run_directories.require_run_directory(tmp_path / "file", continues=False)
    with pytest.raises(ConfigError, match="cannot be written"):
        run_directories.require_run_directory(tmp_path / "file" / "below", continues=False)
    (tmp_path / CONFIG_FILE).write_text("{}")
    run_directories.require_run_directory(tmp_path, continues=False)  # of a run that never came to a checkpoint
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint-00000000.json").write_text("{}")
    with pytest.raises(ConfigError, match="already holds a run"):
        run_directories.require_run_directory(tmp_path, continues=False)
    with pytest.raises(ConfigError, match=r"--resume .* --env m:E-v0 --plugin mine\."):
        run_directories.require_run_directory(tmp_path, continues=False, env="m:E-v0", plugin="mine")
    (tmp_path / "summary.json").write_text('{"finished": true}')
    with pytest.raises(ConfigError, match=r"--resume .* --total-steps N\."):  # else it would be refused
        run_directories.require_run_directory(tmp_path, continues=False)
    run_directories.require_run_directory(tmp_path, continues=True)
