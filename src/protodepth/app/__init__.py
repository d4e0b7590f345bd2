"""The local web page: ``answers`` computes, ``worker`` does so in a process of its own, ``view`` writes HTML,
``server`` binds them to gradio.
"""
