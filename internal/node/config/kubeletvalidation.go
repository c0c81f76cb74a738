package config

import (
	"fmt"
	"path/filepath"
	"slices"
)

// kubeletRejects returns warnings about values that a kubelet rejects at its start, and that the agent
// accepts (k8s.io/kubernetes pkg/kubelet/apis/config/validation/validation.go
// ValidateKubeletConfiguration, v1.37).
func (c *Config) kubeletRejects() (warnings []string) {
	warn := func(format string, args ...any) {
		warnings = append(warnings, fmt.Sprintf(format, args...)+": a kubelet rejects this")
	}
	if low, high := c.ImageGCLowThresholdPercent, c.ImageGCHighThresholdPercent; low >= high {
		warn("imageGCLowThresholdPercent: %d is not less than imageGCHighThresholdPercent, %d", low, high)
	}
	if oldest, least := c.ImageMaximumGCAge, c.ImageMinimumGCAge; oldest > 0 && oldest <= least {
		warn("imageMaximumGCAge: %v is not greater than imageMinimumGCAge, %v", oldest, least)
	}
	enforced := c.EnforceNodeAllocatable
	for i, name := range enforced {
		if slices.Contains(enforced[:i], name) {
			warn("enforceNodeAllocatable: %q twice", name)
		}
	}
	if slices.Contains(enforced, "none") && len(enforced) > 1 {
		warn(`enforceNodeAllocatable: "none" with other values`)
	}
	for _, name := range []string{"kube-reserved", "system-reserved"} {
		if part := name + "-compressible"; slices.Contains(enforced, name) &&
			slices.Contains(enforced, part) {
			warn("enforceNodeAllocatable: %q with %q", name, part)
		}
	}
	if dir := c.PodLogsDir; dir != filepath.Clean(dir) {
		warn("podLogsDir: %q is not normalized", dir)
	}
	if slices.ContainsFunc([]rune(c.PodLogsDir), func(r rune) bool { return r > '\x7f' }) {
		warn("podLogsDir: %q is not all ASCII", c.PodLogsDir)
	}
	return warnings
}
