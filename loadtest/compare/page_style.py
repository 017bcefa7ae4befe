"""How the page looks: light or dark as the reader's system is, in colours that colour-blind readers tell
apart."""

STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #59636e; --paper: #fff; --line: #d7dce1;
  --track: #eef1f4;
  --s0: #0072b2; --s1: #e69f00; --good: #00658f; --bad: #b3400a; --good-paper: #e3f2fa; --bad-paper:
  #fdeade; }
@media (prefers-color-scheme: dark) { :root { --text: #e6eaee; --soft: #9aa5b1; --paper: #14181d; --line:
  #333b44;
  --track: #222931; --s0: #56b4e9; --s1: #e69f00; --good: #7cc7f0; --bad: #ff9a62; --good-paper: #12303f;
  --bad-paper: #40210f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1400px; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 1rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; }
pre, code { font: .9em ui-monospace, monospace; }
pre { background: var(--track); padding: .5rem .75rem; border-radius: 6px; overflow-x: auto; }
#verdict { padding: .75rem 1rem; border-left: 6px solid; border-radius: 4px; font-weight: 600;
  margin-bottom: 1rem; }
#verdict.good { border-color: var(--good); background: var(--good-paper); }
#verdict.bad { border-color: var(--bad); background: var(--bad-paper); }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .84rem; }
th, td { padding: .35rem .45rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align:
  top; }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: 600; white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
a { color: inherit; text-decoration-color: var(--line); }
.badge { white-space: nowrap; font-weight: 600; }
.badge.holds { color: var(--good); }
.badge.breaks { color: var(--bad); }
.badge.other { color: var(--soft); }
.plots { columns: 34rem 2; column-gap: 3rem; }
figure { margin: 0 0 2rem; break-inside: avoid; }
figcaption h2 { margin: 0; }
figcaption p { color: var(--soft); font-size: .87rem; }
.legend { display: flex; gap: 1.25rem; }
.key::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .4em;
  border-radius: 2px; }
.key.s0::before, i.s0 { background: var(--s0); }
.key.s1::before, i.s1 { background: var(--s1); }
.row { display: grid; grid-template-columns: 13.5rem 1fr; gap: .75rem; align-items: center; padding: .2rem
  0;
  border-bottom: 1px solid var(--track); font-size: .87rem; }
.name { text-align: right; overflow-wrap: anywhere; }
.name abbr { color: var(--bad); text-decoration: none; font-weight: 700; }
.bar { display: flex; align-items: center; gap: .4rem; height: 1.1rem; padding-right: 5.5rem; }
.bar i { display: block; height: .75rem; min-width: 1px; flex: none; border-radius: 0 3px 3px 0; }
.bar b { font-weight: 400; white-space: nowrap; font-variant-numeric: tabular-nums; }
dt { font-weight: 700; margin-top: 1rem; }
dd { margin: 0; max-width: 60rem; }
@media (max-width: 40rem) { .row { grid-template-columns: 1fr; gap: 0; } .name { text-align: left; } }
"""
