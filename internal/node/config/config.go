// Package config loads the agent's configuration from a file of kind AgentConfiguration or
// KubeletConfiguration. An unknown or wrong field of an AgentConfiguration is an error with its
// line. A KubeletConfiguration is accepted as the kubelet accepts it.
//
//	fields.go             Config: the fields
//	config.go             defaults, and checks of the complete configuration
//	load.go               Load: parses a file, with the line of each field
//	origin.go             Settings: the values in effect and their origins
//	reload.go             Reloaded: compares a reloaded configuration with the current one
//	runtime.go            the runtime's socket, and the environment's variables
//	trust.go              checks that no other user can change a file
//	salvage.go            Salvage: the configuration of commands if the file is invalid
//	find.go               Find: the file, or the configuration of the node's kubelet
//	dropins.go            a kubelet's drop-ins: order and merge
//	flags.go              a kubelet's flags
//	kubeletfields.go      fields that a kubelet does not have, and their likely places
//	kubeletvalidation.go  values that a kubelet rejects
//	mode.go               Mode: act, or observe on a node with a kubelet
//	eviction.go           Eviction, Replay: the configuration of eviction decisions
//	gcpolicy.go           Collect, GCPolicy: the configuration of garbage collection
//	deschedule.go         the configuration of descheduling
//	admission.go          the configuration of admission
//	reserved.go           resources reserved for the kubelet and the system
//	listen.go             the configuration of the network listener
//	logs.go               the configuration of log rotation
package config

import (
	"cmp"
	_ "embed" // DefaultFile
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"jettison/api"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/base/strict"
	"jettison/stats"
)

// DefaultPath is the file that Load reads if no path is given. It may be missing.
const DefaultPath = "/etc/jettison/config.yaml"

// DefaultFile is an AgentConfiguration with every field, its default and its description.
//
//go:embed default.yaml
var DefaultFile string

// Kinds of configuration files and their apiVersions.
const (
	KindAgent         = "AgentConfiguration"
	APIVersionAgent   = "jettison/v1alpha1"
	KindKubelet       = "KubeletConfiguration"
	APIVersionKubelet = "kubelet.config.k8s.io/v1beta1"
)

// kindBoth is an agent's file over a kubelet's configuration. The kubelet accepts its part, so a
// questionable combination is a warning.
const kindBoth = "both"

// Default returns the configuration of an agent without a file. Fields that a file omits have these
// values.
func Default() *Config {
	c := defaults(KindAgent)
	if _, err := c.complete(KindAgent); err != nil {
		panic(err) // the defaults are tested
	}
	return c
}

func defaults(kind string) *Config {
	c := &Config{
		EvictionPressureTransitionPeriod: Duration(5 * time.Minute),
		ImageGCHighThresholdPercent:      85,
		ImageGCLowThresholdPercent:       80,
		ImageMinimumGCAge:                Duration(2 * time.Minute),
		EnforceNodeAllocatable:           []string{"pods"},
		MaxPods:                          110,
		LocalStorageCapacityIsolation:    true,
		ContainerRuntimeEndpoint:         "unix:///run/containerd/containerd.sock",
		PodLogsDir:                       "/var/log/pods",
		CgroupDriver:                     "cgroupfs",
		ContainerLogMaxSize:              "10Mi",
		ContainerLogMaxFiles:             5,

		RootDir: "/var/lib/kubelet",
		ContainerGC: ContainerGC{MaxPerPodContainer: 1, MaxContainers: -1,
			CreatedMinAge: Duration(10 * time.Minute)},
		MemoryAvailable:      stats.MemoryAvailableLower,
		AnnotationNamespaces: []string{"kube-system"},
		ProtectedNamespaces:  []string{"kube-system"},
		Breaker:              true,
		ContainerGCPeriod:    Duration(time.Minute),
		ImageGCPeriod:        Duration(5 * time.Minute),
		PodGoneAfter:         Duration(5 * time.Minute),
		Gate:                 true,
		Preemption:           true,
		RuntimeWait:          Duration(30 * time.Second),
		Pods:                 Off,
		Deschedule:           Off,
		Descheduling:         defaultDescheduling(),
		Socket:               api.DefaultSocket,
		StateDir:             "/var/lib/jettison",
	}
	if kind == KindKubelet {
		c.MemoryAvailable, c.Breaker = stats.MemoryAvailableWorkingSet, false
	}
	return c
}

// fieldError returns the error of a field, a path of keys: "evictionHard", "memory.available". The
// loader adds the line.
func fieldError(err error, field ...string) error {
	return &strict.FieldError{Field: strings.Join(field, separator), Err: err}
}

// complete computes the fields that depend on others, and checks all values. A value that the
// kubelet accepts but should not is an error in an AgentConfiguration and a warning in a kubelet's
// file.
func (c *Config) complete(kind string) (warnings []string, err error) {
	c.mergeDefaults()
	c.defaultZeroValues()
	if err := c.checkPaths(); err != nil {
		return nil, err
	}
	if warnings, err = c.parseThresholds(kind); err != nil {
		return nil, err
	}
	logs, err := c.parseLogs(kind)
	if err != nil {
		return nil, err
	}
	if err := c.checkEnums(); err != nil {
		return nil, err
	}
	if err := c.checkListen(); err != nil {
		return nil, err
	}
	if err := c.checkGC(); err != nil {
		return nil, err
	}
	if err := c.parseReserved(); err != nil {
		return nil, err
	}
	if err := c.parseAdmission(); err != nil {
		return nil, err
	}
	if err := c.Descheduling.check(); err != nil {
		return nil, err
	}
	return slices.Concat(warnings, logs, c.kubeletRejects()), c.checkDurations()
}

// mergeDefaults sets the default thresholds: all, or those that the file does not set.
func (c *Config) mergeDefaults() {
	switch {
	case c.EvictionHard == nil:
		c.EvictionHard = eviction.DefaultHard()
	case c.MergeDefaultEvictionSettings:
		merged := eviction.DefaultHard()
		maps.Copy(merged, c.EvictionHard)
		c.EvictionHard = merged
	}
}

// checkPaths checks endpoints and paths.
func (c *Config) checkPaths() error {
	if _, err := cri.ParseEndpoint(c.ContainerRuntimeEndpoint); err != nil {
		return fieldError(err, "containerRuntimeEndpoint")
	}
	if c.ImageServiceEndpoint != "" {
		if _, err := cri.ParseEndpoint(c.ImageServiceEndpoint); err != nil {
			return fieldError(err, "imageServiceEndpoint")
		}
	}
	for _, f := range []struct{ field, value string }{
		{"rootDir", c.RootDir}, {"podLogsDir", c.PodLogsDir}, {"staticPodPath", c.StaticPodPath},
		{"socket", c.Socket}, {"record", c.Record},
		{"stateDir", c.StateDir},
	} {
		if f.value != "" && !filepath.IsAbs(f.value) {
			return fieldError(fmt.Errorf("%q: want an absolute path", f.value), f.field)
		}
	}
	if c.Socket == "" && c.SocketGroup != "" { // only an AgentConfiguration can set this
		err := fmt.Errorf("group %.64q needs a socket: set socket to a path, or remove socketGroup",
			c.SocketGroup)
		return fieldError(err, "socketGroup")
	}
	return nil
}

// Off is the value of a field that disables its feature.
const Off = "off"

// checkEnums checks fields that accept one of a few values.
func (c *Config) checkEnums() error {
	for _, f := range []struct {
		field, value string
		allowed      []string
	}{
		{"memoryAvailable", string(c.MemoryAvailable), []string{"workingSet", "kernel", "lower"}},
		{"cgroupDriver", c.CgroupDriver, []string{"cgroupfs", "systemd"}},
		{"disk", string(c.Disk), modes},
		{"gc", string(c.GC), modes},
		{"pods", c.Pods, []string{Off}},
		{"deschedule", c.Deschedule, []string{Off, DescheduleReport, DescheduleAct}},
	} {
		if err := oneOf(f.value, f.allowed); err != nil {
			return fieldError(err, f.field)
		}
	}
	return nil
}

// checkDurations checks durations that must not be negative.
func (c *Config) checkDurations() error {
	for _, f := range []struct {
		field string
		value Duration
	}{
		{"runtimeWait", c.RuntimeWait}, {"podGoneAfter", c.PodGoneAfter},
		{"imageMinimumGCAge", c.ImageMinimumGCAge}, {"imageMaximumGCAge", c.ImageMaximumGCAge},
	} {
		if f.value < 0 {
			return fieldError(fmt.Errorf("%v is negative", f.value), f.field)
		}
	}
	return nil
}

// allocatableValues are the values that enforceNodeAllocatable accepts
// (pkg/kubelet/apis/config/validation/validation.go).
var allocatableValues = []string{
	"none", "pods", "system-reserved", "system-reserved-compressible", "kube-reserved",
	"kube-reserved-compressible",
}

// parseThresholds sets Thresholds from the maps of the file.
func (c *Config) parseThresholds(kind string) (warnings []string, err error) {
	settings := eviction.Settings{
		EvictionHard: c.EvictionHard, EvictionSoft: c.EvictionSoft,
		EvictionSoftGracePeriod: c.EvictionSoftGracePeriod,
		EvictionMinimumReclaim:  c.EvictionMinimumReclaim,
		EnforceNodeAllocatable:  c.EnforceNodeAllocatable, OwnSignals: kind != KindKubelet,
	}
	thresholds, doubts, errs := settings.Parse()
	addDoubt := func(f, format string, args ...any) {
		doubts = append(doubts, &eviction.FieldError{Field: []string{f},
			Err: fmt.Errorf(format, args...)})
	}
	for _, name := range c.EnforceNodeAllocatable {
		if err := oneOf(name, allocatableValues); err != nil {
			errs = append(errs, &eviction.FieldError{Field: []string{"enforceNodeAllocatable"}, Err: err})
		}
	}
	// The help of the kubelet's flag promises that a negative value selects the pod's own grace
	// period.
	if most := c.EvictionMaxPodGracePeriod; most < 0 {
		addDoubt("evictionMaxPodGracePeriod",
			"%d is negative: evictions for soft thresholds use a grace period of 1 s", most)
	}
	if c.EvictionPressureTransitionPeriod < 0 {
		addDoubt("evictionPressureTransitionPeriod", "%v is negative: conditions end without delay",
			c.EvictionPressureTransitionPeriod)
	}
	if kind == KindAgent {
		errs = append(errs, doubts...)
		doubts = nil
	}
	if len(errs) > 0 {
		return nil, fieldError(errs[0].Err, errs[0].Field...)
	}
	for _, d := range doubts {
		warnings = append(warnings, d.Line())
	}
	c.Thresholds = thresholds
	return warnings, nil
}

// defaultZeroValues sets fields with the zero value to their defaults, as the kubelet's loader does.
// Files that tools such as kubeadm write contain zero values (k8s.io/kubernetes
// pkg/kubelet/apis/config/v1beta1/defaults.go, v1.37).
func (c *Config) defaultZeroValues() {
	d := defaults(KindKubelet)
	c.EvictionPressureTransitionPeriod = cmp.Or(c.EvictionPressureTransitionPeriod,
		d.EvictionPressureTransitionPeriod)
	c.MaxPods = cmp.Or(c.MaxPods, d.MaxPods)
	c.ImageMinimumGCAge = cmp.Or(c.ImageMinimumGCAge, d.ImageMinimumGCAge)
	c.ContainerRuntimeEndpoint = cmp.Or(c.ContainerRuntimeEndpoint, d.ContainerRuntimeEndpoint)
	c.RootDir = cmp.Or(c.RootDir, d.RootDir)
	c.PodLogsDir = cmp.Or(c.PodLogsDir, d.PodLogsDir)
	c.CgroupDriver = cmp.Or(c.CgroupDriver, d.CgroupDriver)
	c.ContainerLogMaxSize = cmp.Or(c.ContainerLogMaxSize, d.ContainerLogMaxSize)
}

func oneOf(value string, allowed []string) error {
	named := make([]string, 0, len(allowed))
	for _, a := range allowed {
		if value == a {
			return nil
		}
		if a != "" {
			named = append(named, a)
		}
	}
	return fmt.Errorf("%q: want one of %v", value, named)
}
