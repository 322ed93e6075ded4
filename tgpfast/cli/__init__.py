"""The command ``tgpfast``: one module per command, on top of the Python functions.

Messages and warnings go to standard error, results to standard output. `command_line` runs a
command. Commands share `options`, `data_source` (the rows they read), `saved_files`, `output`, and
`flag_names`, which puts the messages of the functions into the words of the command line.
"""

from .command_line import main as main
