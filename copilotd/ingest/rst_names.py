"""What is known of directives by their names: docutils' and Sphinx's own, and common extensions."""

from __future__ import annotations

from copilotd.ingest.outline import names

# Their content is code, or at least not reStructuredText.
CODE = names(
    """
    code code-block sourcecode parsed-literal literalinclude math prompt testcode testoutput testsetup doctest
    ipython graphviz digraph graph mermaid uml plantuml productionlist raw console
    """
)
TABLES = names("list-table csv-table flat-table")
# Their content is a list of names.
LISTINGS = names("toctree autosummary")
# They stand for a part of the document, so that titles may be in them.
TRANSPARENT = names("only ifconfig")
# Their text may begin beside the name.
TEXT = names(
    """
    attention caution danger error hint important note seealso tip todo warning
    epigraph highlights pull-quote compound line-block parsed-literal
    """
)
# A reader sees their name.
NAMED = names(
    """
    attention caution danger error hint important note seealso tip todo warning
    deprecated versionadded versionchanged versionremoved
    """
)
# Shown as they are written: a block of code begins with them, or they name a file.
SHOWN = names("code code-block sourcecode include literalinclude image figure math")
# What stands beside their name is a setting.
SETTINGS = names(
    """
    class container contents currentmodule default-domain default-role highlight index meta module only ifconfig
    py:currentmodule py:module raw role rst-class sectnum section-numbering tabularcolumns target-notes title
    """
)
SEEN_OPTIONS = names("alt caption header title")
