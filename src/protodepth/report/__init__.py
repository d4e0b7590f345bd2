"""Reports: ``results`` the document, ``run`` its files, ``run_page`` and ``bench_page`` the HTML, ``gallery`` frames,
``charts`` SVG.
"""
