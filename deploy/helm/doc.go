// Package helm generates and tests the chart in folder jettison. The tests render and lint the
// chart with Helm, and compare its objects with those of the kustomize overlays.
package helm
