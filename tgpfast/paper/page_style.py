"""The style sheet of the html report: readable on a phone, light or dark, with no outside files."""

STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --quiet: #57606a; --page: #ffffff;
  --band: #f3f5f7; --line: #d0d7de; --link: #0059b3; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ec; --quiet: #a5adb6; --page: #14171a;
  --band: #1f2429; --line: #3a424b; --link: #7db8ff; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--page);
  color: var(--text); font: 1.0625rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto,
  "Noto Sans", "Helvetica Neue", Arial, sans-serif; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.25; }
h1 { font-size: 1.7rem; }
h2 { margin-top: 2.5rem; padding-top: .5rem; border-top: 1px solid var(--line);
  font-size: 1.35rem; }
h3 { font-size: 1.1rem; }
a { color: var(--link); }
nav { padding: .25rem 1rem; background: var(--band); border-radius: .5rem; }
nav li { padding: .2rem 0; }
figure { margin: 1.5rem 0; }
figcaption { margin: .5rem 0; color: var(--quiet); }
.card { padding: .5rem; background: #ffffff; border: 1px solid var(--line);
  border-radius: .5rem; text-align: center; }
img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .5rem; }
table { border-collapse: separate; border-spacing: 0; min-width: 100%; font-size: 1rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .7rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; }
tbody tr:last-child > * { border-bottom: 0; }
thead th { background: var(--band); }
th:first-child { position: sticky; left: 0; background: var(--band); }
th[scope=row] { max-width: 45vw; white-space: normal; }
td.prose { min-width: 16rem; white-space: normal; }
.number { text-align: right; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) minmax(0, 1fr);
  gap: .3rem 1rem; }
dt { color: var(--quiet); }
dd { margin: 0; }
"""
