"""Draws a screen of a terminal, with its colours: terminal.py TITLE < SCREEN > FILE.svg

SCREEN is what `tmux capture-pane -e -p` prints. The fonts are those of the reader: the picture refers to no other file.
"""

import io
import sys

from rich.console import Console
from rich.text import Text

FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px; \
line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-family: Helvetica, Arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""

screen = sys.stdin.read().rstrip("\n").split("\n")
texts = [Text.from_ansi(line) for line in screen]
width = max(text.cell_len for text in texts)
console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
for text in texts:
    console.print(text, no_wrap=True, overflow="crop")
sys.stdout.write(console.export_svg(title=sys.argv[1], code_format=FORMAT, unique_id="terminal"))
