"""One self-contained HTML file about a network: `reluscope.report(net, law)` and `reluscope report MODEL`.

`charts` draws SVG that takes its colours from the page (so it follows light and dark), `sections` asks the questions
and words the answers, `report` puts them on the page. Nothing here computes: every number comes from an answer.
"""
