// Package ui opens the page of jettison ui in a headless Chromium: over a scripted agent that answers with the agent's own handlers, and over
// a live agent on the test node. `make ui-test` runs it.
package ui
