"""The command line: what a person sees."""

import subprocess
import sys

import pytest

from tgpfast import __version__, cli


def test_demo_prints_a_table_and_draws(tmp_path, capsys):
    picture = tmp_path / "demo.png"
    assert cli.main(["demo", "--rows", "2000", "--features", "40", "-o", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "rows a second" in out
    assert "numpy" in out
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert "no picture" in out
    else:
        assert picture.stat().st_size > 10_000


def test_errors_are_one_line(capsys):
    assert cli.main(["demo", "--rows", "3"]) == 1
    err = capsys.readouterr().err
    assert err == "tgpfast: --rows 3: at least 100 are needed\n"
    assert cli.main(["warmup", "--backend", "cuda"]) == 1
    assert "cuda" in capsys.readouterr().err


def test_warmup_says_which_backend(capsys):
    assert cli.main(["warmup", "--backend", "numpy"]) == 0
    assert capsys.readouterr().out == "ready: numpy\n"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["demo", "--help"]])
def test_help_and_version_exit_cleanly(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 0
    assert capsys.readouterr().out.strip()


def test_python_dash_m():
    result = subprocess.run(
        [sys.executable, "-m", "tgpfast", "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout == f"tgpfast {__version__}\n"
