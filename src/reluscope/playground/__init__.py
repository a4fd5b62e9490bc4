"""A local web page on which to play with a network: `reluscope playground`. It only shows the library's answers.

`session.py` holds what is looked at, `scene.py` turns answers into what the page draws, `server.py` serves it.
"""
