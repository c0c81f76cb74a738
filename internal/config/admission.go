package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
)

// effects are those that a taint may have.
var effects = []string{string(v1.TaintEffectNoSchedule), string(v1.TaintEffectPreferNoSchedule), string(v1.TaintEffectNoExecute)}

// parseAdmission checks what says which pods the node takes. A kubelet does not start with what is wrong here
// (pkg/kubelet/apis/config/validation/validation.go, pkg/kubelet/sysctl/allowlist.go, v1.36.3).
func (c *Config) parseAdmission() (err error) {
	if c.Sysctls, err = admit.NewSysctls(c.AllowedUnsafeSysctls); err != nil {
		return wrong(err, "allowedUnsafeSysctls")
	}
	for _, f := range []struct {
		field, flag string
		value       int32
	}{{"maxPods", "--max-pods", c.MaxPods}, {"podsPerCore", "--pods-per-core", c.PodsPerCore}} {
		if f.value < 0 {
			return wrong(fmt.Errorf("invalid configuration: %s (%s) %v must not be a negative number", f.field, f.flag, f.value), f.field)
		}
	}
	for i, t := range c.RegisterWithTaints {
		at := []string{"registerWithTaints", strconv.Itoa(i)}
		if t.Effect != "" && !slices.Contains(effects, t.Effect) {
			return wrong(fmt.Errorf("invalid taint: %.64s=%.64s:%.64s: want an effect of %v", t.Key, t.Value, t.Effect, effects), at...)
		}
		if t.TimeAdded != "" {
			return wrong(errors.New("invalid configuration: taint.TimeAdded is not nil"), at...)
		}
	}
	return nil
}

// Taints are those of the node.
func (c *Config) Taints() (out []v1.Taint) {
	for _, t := range c.RegisterWithTaints {
		out = append(out, v1.Taint{Key: t.Key, Value: t.Value, Effect: v1.TaintEffect(t.Effect)})
	}
	return out
}

// MostPods is how many pods a node with so many cores takes (pkg/kubelet/nodestatus/setters.go MachineInfo).
func (c *Config) MostPods(cores int) int64 {
	if c.PodsPerCore > 0 {
		return min(int64(cores)*int64(c.PodsPerCore), int64(c.MaxPods))
	}
	return int64(c.MaxPods)
}
