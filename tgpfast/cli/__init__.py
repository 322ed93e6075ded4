"""The command ``tgpfast``: one module per command, on top of the Python functions.

Messages and warnings go to standard error, results to standard output.
"""

from .command_line import main as main
