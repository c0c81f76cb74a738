package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"jettison/admit"
)

// effects are the valid effects of a taint.
var effects = []string{string(v1.TaintEffectNoSchedule), string(v1.TaintEffectPreferNoSchedule),
	string(v1.TaintEffectNoExecute)}

// parseAdmission checks the fields for admission. A kubelet does not start with values that are
// wrong here (pkg/kubelet/apis/config/validation/validation.go, pkg/kubelet/sysctl/allowlist.go,
// v1.37.2).
func (c *Config) parseAdmission() (err error) {
	if c.Sysctls, err = admit.NewSysctls(c.AllowedUnsafeSysctls); err != nil {
		return fieldError(err, "allowedUnsafeSysctls")
	}
	for _, f := range []struct {
		field, flag string
		value       int32
	}{{"maxPods", "--max-pods", c.MaxPods}, {"podsPerCore", "--pods-per-core", c.PodsPerCore}} {
		if f.value < 0 {
			return fieldError(fmt.Errorf("invalid configuration: %s (%s) %v must not be a negative number",
				f.field, f.flag, f.value), f.field)
		}
	}
	if err := c.parseNode(); err != nil {
		return err
	}
	for i, t := range c.RegisterWithTaints {
		at := []string{"registerWithTaints", strconv.Itoa(i)}
		if err := checkLabel("taint", t.Key, t.Value,
			func(part string) []string { return append(at, part) }); err != nil {
			return err
		}
		if t.Effect != "" && !slices.Contains(effects, t.Effect) {
			return fieldError(fmt.Errorf("invalid taint: %.64s=%.64s:%.64s: want an effect of %v", t.Key, t.Value,
				t.Effect, effects), at...)
		}
		if t.TimeAdded != "" {
			return fieldError(errors.New("invalid configuration: taint.TimeAdded is not nil"), at...)
		}
	}
	return nil
}

// parseNode checks the node's name and labels. It trims and lowercases the name, as the kubelet
// does (k8s.io/component-helpers node/util GetHostname).
func (c *Config) parseNode() error {
	if given := c.HostnameOverride; given != "" {
		if c.HostnameOverride = strings.ToLower(strings.TrimSpace(given)); c.HostnameOverride == "" {
			return fieldError(errors.New("empty hostname is invalid"), "hostnameOverride")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.NodeLabels)) {
		at := func(string) []string { return []string{"nodeLabels", key} }
		if err := checkLabel("label", key, c.NodeLabels[key], at); err != nil {
			return err
		}
	}
	return nil
}

// checkLabel checks the form of a label or a taint (pkg/util/taints CheckTaintValidation,
// ValidateKubeletFlags).
func checkLabel(what, key, value string, at func(part string) []string) error {
	if wrongs := validation.IsQualifiedName(key); len(wrongs) > 0 {
		return fieldError(fmt.Errorf("invalid %s key: %s", what, wrongs[0]), at("key")...)
	}
	if wrongs := validation.IsValidLabelValue(value); len(wrongs) > 0 {
		return fieldError(fmt.Errorf("invalid %s value: %.64q: %s", what, value, wrongs[0]), at("value")...)
	}
	return nil
}

// Taints returns the taints of the node.
func (c *Config) Taints() (out []v1.Taint) {
	for _, t := range c.RegisterWithTaints {
		out = append(out, v1.Taint{Key: t.Key, Value: t.Value, Effect: v1.TaintEffect(t.Effect)})
	}
	return out
}

// MaxPodCount returns the maximum number of pods on a node with this number of cores
// (pkg/kubelet/nodestatus/setters.go MachineInfo).
func (c *Config) MaxPodCount(cores int) int64 {
	if c.PodsPerCore > 0 {
		return min(int64(cores)*int64(c.PodsPerCore), int64(c.MaxPods))
	}
	return int64(c.MaxPods)
}
