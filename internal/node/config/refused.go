package config

import (
	"fmt"
	"path/filepath"
	"slices"
)

// refused are values that a kubelet does not start with, and the agent can live with
// (k8s.io/kubernetes pkg/kubelet/apis/config/validation/validation.go ValidateKubeletConfiguration,
// v1.36).
func (c *Config) refused() (warnings []string) {
	say := func(format string, args ...any) {
		warnings = append(warnings, fmt.Sprintf(format, args...)+": a kubelet refuses that")
	}
	if low, high := c.ImageGCLowThresholdPercent, c.ImageGCHighThresholdPercent; low >= high {
		say("imageGCLowThresholdPercent: %d is not less than imageGCHighThresholdPercent, %d", low, high)
	}
	if oldest, least := c.ImageMaximumGCAge, c.ImageMinimumGCAge; oldest > 0 && oldest <= least {
		say("imageMaximumGCAge: %v is not greater than imageMinimumGCAge, %v", oldest, least)
	}
	enforced := c.EnforceNodeAllocatable
	for i, name := range enforced {
		if slices.Contains(enforced[:i], name) {
			say("enforceNodeAllocatable: %q twice", name)
		}
	}
	if slices.Contains(enforced, "none") && len(enforced) > 1 {
		say(`enforceNodeAllocatable: "none" beside others`)
	}
	for _, name := range []string{"kube-reserved", "system-reserved"} {
		if part := name + "-compressible"; slices.Contains(enforced, name) &&
			slices.Contains(enforced, part) {
			say("enforceNodeAllocatable: %q beside %q", name, part)
		}
	}
	if dir := c.PodLogsDir; dir != filepath.Clean(dir) {
		say("podLogsDir: %q is not normalized", dir)
	}
	if slices.ContainsFunc([]rune(c.PodLogsDir), func(r rune) bool { return r > '\x7f' }) {
		say("podLogsDir: %q is not all ASCII", c.PodLogsDir)
	}
	return warnings
}
