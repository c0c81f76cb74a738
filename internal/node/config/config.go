// Package config loads the agent's configuration: a file of its own (kind AgentConfiguration),
// where every unknown or wrong field is an error with its line, or a kubelet's own
// KubeletConfiguration, which is taken as it is.
//
//	fields.go    Config: the fields
//	config.go    their defaults, what is checked when all are known
//	load.go      Load: a file's text, with the line of each field
//	origin.go    Settings: what holds, and where each value comes from
//	reload.go    Reloaded: what another configuration makes of the one that holds
//	runtime.go   the runtime's socket, and what the environment says
//	trust.go     files that others may write to
//	salvage.go   Salvage: what commands go by beside a file that is wrong
//	find.go      Find: the file, or the configuration of the node's kubelet
//	dropins.go   drop-ins of a kubelet: which, in which order, how they are merged
//	flags.go     flags of a kubelet
//	refused.go   what a kubelet refuses
//	mode.go      Mode: act, or observe beside a kubelet
//	eviction.go  Eviction, Replay: what decisions go by
//	gcpolicy.go  Collect, GCPolicy: what garbage collection goes by
//	deschedule.go which pods should not be there any more
//	admission.go what pods the node takes
//	reserved.go  what is kept back from pods, and whether that is written
//	listen.go    what is served on the network, and to whom
//	logs.go      when logs of containers are rotated
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

// DefaultPath is read when no file is named; it may be missing.
const DefaultPath = "/etc/jettison/config.yaml"

// DefaultFile is a file of our own with every field, each with its default and what it is for.
//
//go:embed default.yaml
var DefaultFile string

// Kinds of configuration files, and their apiVersions.
const (
	KindAgent         = "AgentConfiguration"
	APIVersionAgent   = "jettison/v1alpha1"
	KindKubelet       = "KubeletConfiguration"
	APIVersionKubelet = "kubelet.config.k8s.io/v1beta1"
)

// kindBoth is a file of our own over a kubelet's. That one is right by itself, so what is odd
// together is a warning.
const kindBoth = "both"

// Default is the configuration of an agent without a file, and what a file's absent fields are.
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
		MemoryThrottlingFactor:           0.9,
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

// wrong returns the error of a field, a path of keys: "evictionHard", "memory.available". The
// loader adds the line.
func wrong(err error, field ...string) error {
	return &strict.FieldError{Field: strings.Join(field, separator), Err: err}
}

// complete fills in what depends on other fields and checks values. What a kubelet takes and should
// not is an error in a file of our own, and a warning in a kubelet's.
func (c *Config) complete(kind string) (warnings []string, err error) {
	c.mergeDefaults()
	c.zeroIsDefault()
	if err := c.checkPlaces(); err != nil {
		return nil, err
	}
	if warnings, err = c.parseThresholds(kind); err != nil {
		return nil, err
	}
	logs, err := c.parseLogs(kind)
	if err != nil {
		return nil, err
	}
	if err := c.checkWords(); err != nil {
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
	return slices.Concat(warnings, logs, c.refused()), c.checkTimes()
}

// mergeDefaults gives thresholds their defaults, all or those that a file does not name.
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

// checkPlaces checks endpoints and paths.
func (c *Config) checkPlaces() error {
	if _, err := cri.ParseEndpoint(c.ContainerRuntimeEndpoint); err != nil {
		return wrong(err, "containerRuntimeEndpoint")
	}
	if c.ImageServiceEndpoint != "" {
		if _, err := cri.ParseEndpoint(c.ImageServiceEndpoint); err != nil {
			return wrong(err, "imageServiceEndpoint")
		}
	}
	for _, f := range []struct{ field, value string }{
		{"rootDir", c.RootDir}, {"podLogsDir", c.PodLogsDir}, {"staticPodPath", c.StaticPodPath},
		{"socket", c.Socket}, {"record", c.Record},
		{"stateDir", c.StateDir},
	} {
		if f.value != "" && !filepath.IsAbs(f.value) {
			return wrong(fmt.Errorf("%q: want an absolute path", f.value), f.field)
		}
	}
	if c.Socket == "" && c.SocketGroup != "" { // only a file of our own can say so
		err := fmt.Errorf("%.64q may use a socket that there is none of: set socket to a path, or "+
			"remove socketGroup", c.SocketGroup)
		return wrong(err, "socketGroup")
	}
	return nil
}

// Off is what a field has whose feature is not wanted.
const Off = "off"

// checkWords checks fields that are one of a few words.
func (c *Config) checkWords() error {
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
			return wrong(err, f.field)
		}
	}
	return nil
}

// checkTimes checks durations that have no meaning below 0.
func (c *Config) checkTimes() error {
	for _, f := range []struct {
		field string
		value Duration
	}{
		{"runtimeWait", c.RuntimeWait}, {"podGoneAfter", c.PodGoneAfter},
		{"imageMinimumGCAge", c.ImageMinimumGCAge}, {"imageMaximumGCAge", c.ImageMaximumGCAge},
	} {
		if f.value < 0 {
			return wrong(fmt.Errorf("%v is negative", f.value), f.field)
		}
	}
	return nil
}

// allocatables are what enforceNodeAllocatable may have
// (pkg/kubelet/apis/config/validation/validation.go).
var allocatables = []string{
	"none", "pods", "system-reserved", "system-reserved-compressible", "kube-reserved",
	"kube-reserved-compressible",
}

// parseThresholds makes thresholds of the maps.
func (c *Config) parseThresholds(kind string) (warnings []string, err error) {
	settings := eviction.Settings{
		EvictionHard: c.EvictionHard, EvictionSoft: c.EvictionSoft,
		EvictionSoftGracePeriod: c.EvictionSoftGracePeriod,
		EvictionMinimumReclaim:  c.EvictionMinimumReclaim,
		EnforceNodeAllocatable:  c.EnforceNodeAllocatable, OwnSignals: kind != KindKubelet,
	}
	thresholds, doubts, errs := settings.Parse()
	odd := func(f, format string, args ...any) {
		doubts = append(doubts, &eviction.FieldError{Field: []string{f},
			Err: fmt.Errorf(format, args...)})
	}
	for _, name := range c.EnforceNodeAllocatable {
		if err := oneOf(name, allocatables); err != nil {
			errs = append(errs, &eviction.FieldError{Field: []string{"enforceNodeAllocatable"}, Err: err})
		}
	}
	// the flag's help promises that the pod's own counts then
	if most := c.EvictionMaxPodGracePeriod; most < 0 {
		odd("evictionMaxPodGracePeriod",
			"%d is negative: evictions for soft thresholds have a grace period of 1 s then", most)
	}
	if c.EvictionPressureTransitionPeriod < 0 {
		odd("evictionPressureTransitionPeriod", "%v is negative: conditions end at once then",
			c.EvictionPressureTransitionPeriod)
	}
	if kind == KindAgent {
		errs = append(errs, doubts...)
		doubts = nil
	}
	if len(errs) > 0 {
		return nil, wrong(errs[0].Err, errs[0].Field...)
	}
	for _, d := range doubts {
		warnings = append(warnings, d.Line())
	}
	c.Thresholds = thresholds
	return warnings, nil
}

// zeroIsDefault: the kubelet's loader takes the zero value of these fields for an absent one, and
// files that tools write (kubeadm's among them) have it (k8s.io/kubernetes
// pkg/kubelet/apis/config/v1beta1/defaults.go, v1.36).
func (c *Config) zeroIsDefault() {
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
