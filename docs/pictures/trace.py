"""Takes a screenshot of a trace in Catapult's viewer, that of chrome://tracing: trace.py TRACE.html WEBCOMPONENTS.js FILE.png

TRACE.html is what viztracer makes of the trace: the viewer with the trace in it. The viewer needs the JavaScript library webcomponents.js,
which it would load from the network.
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

trace, library, picture = sys.argv[1:]
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1200, "height": 1100})
    page.route("https://**", lambda route: route.abort())
    page.route("**/webcomponents.min.js", lambda route: route.fulfill(path=library))
    page.goto(Path(trace).resolve().as_uri())
    page.wait_for_timeout(5000)
    # The upper half: below it are the details of what is selected, which is nothing.
    page.screenshot(path=picture, clip={"x": 0, "y": 0, "width": 1200, "height": 540})
    browser.close()
