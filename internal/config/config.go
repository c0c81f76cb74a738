// Package config loads the agent's configuration: a file of its own (kind AgentConfiguration), where every unknown or wrong
// field is an error with its line, or a kubelet's own KubeletConfiguration, which is taken as it is.
//
//	config.go    Config: the fields, their defaults, what is checked when all are known
//	load.go      Load: a file's text, with the line of each field
//	find.go      Find: the file, or the configuration of the node's kubelet
//	dropins.go   drop-ins of a kubelet: which, in which order, how they are merged
//	flags.go     flags of a kubelet
//	refused.go   what a kubelet refuses
//	mode.go      Mode: act, or observe beside a kubelet
//	eviction.go  Eviction, Replay: what decisions go by
//	gcpolicy.go  Collect, GCPolicy: what garbage collection goes by
//	admission.go what pods the node takes
//	reserved.go  what is kept back from pods, and whether that is written
//	listen.go    what is served on the network, and to whom
//	logs.go      when logs of containers are rotated
package config

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"jettison/admit"
	"jettison/api"
	"jettison/cri"
	"jettison/eviction"
	"jettison/stats"
)

// DefaultPath is read when no file is named; it may be missing.
const DefaultPath = "/etc/jettison/config.yaml"

// Kinds of configuration files, and their apiVersions.
const (
	KindAgent         = "AgentConfiguration"
	APIVersionAgent   = "jettison/v1alpha1"
	KindKubelet       = "KubeletConfiguration"
	APIVersionKubelet = "kubelet.config.k8s.io/v1beta1"
)

// Duration is a time.Duration that YAML writes as "1m30s", as the kubelet's files do.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// ContainerGC is when dead containers are removed; the kubelet takes these as flags only.
type ContainerGC struct {
	MinAge             Duration `yaml:"minAge"`
	MaxPerPodContainer int32    `yaml:"maxPerPodContainer"`
	MaxContainers      int32    `yaml:"maxContainers"`
	CreatedMinAge      Duration `yaml:"createdMinAge"`
}

// Taint is a taint of registerWithTaints (k8s.io/api/core/v1 Taint).
type Taint struct {
	Key       string `yaml:"key"`
	Value     string `yaml:"value"`
	Effect    string `yaml:"effect"`
	TimeAdded string `yaml:"timeAdded"`
}

// Config is a loaded configuration. The first group of fields has the kubelet's names, grammar and defaults
// (k8s.io/kubelet config/v1beta1); the second is this project's own, and a kubelet's file cannot set it (own).
type Config struct {
	EvictionHard                     map[string]string `yaml:"evictionHard"`
	EvictionSoft                     map[string]string `yaml:"evictionSoft"`
	EvictionSoftGracePeriod          map[string]string `yaml:"evictionSoftGracePeriod"`
	EvictionMinimumReclaim           map[string]string `yaml:"evictionMinimumReclaim"`
	EvictionPressureTransitionPeriod Duration          `yaml:"evictionPressureTransitionPeriod"`
	EvictionMaxPodGracePeriod        int32             `yaml:"evictionMaxPodGracePeriod"`
	MergeDefaultEvictionSettings     bool              `yaml:"mergeDefaultEvictionSettings"`
	ImageGCHighThresholdPercent      int32             `yaml:"imageGCHighThresholdPercent"`
	ImageGCLowThresholdPercent       int32             `yaml:"imageGCLowThresholdPercent"`
	ImageMinimumGCAge                Duration          `yaml:"imageMinimumGCAge"`
	ImageMaximumGCAge                Duration          `yaml:"imageMaximumGCAge"`
	EnforceNodeAllocatable           []string          `yaml:"enforceNodeAllocatable"`
	KubeReserved                     map[string]string `yaml:"kubeReserved"`
	SystemReserved                   map[string]string `yaml:"systemReserved"`
	MemoryThrottlingFactor           float64           `yaml:"memoryThrottlingFactor"`
	RegisterWithTaints               []Taint           `yaml:"registerWithTaints"`
	AllowedUnsafeSysctls             []string          `yaml:"allowedUnsafeSysctls"`
	MaxPods                          int32             `yaml:"maxPods"`
	PodsPerCore                      int32             `yaml:"podsPerCore"` // 0: as many as MaxPods
	LocalStorageCapacityIsolation    bool              `yaml:"localStorageCapacityIsolation"`
	ContainerRuntimeEndpoint         string            `yaml:"containerRuntimeEndpoint"`
	ImageServiceEndpoint             string            `yaml:"imageServiceEndpoint"`
	PodLogsDir                       string            `yaml:"podLogsDir"`
	StaticPodPath                    string            `yaml:"staticPodPath"`
	CgroupRoot                       string            `yaml:"cgroupRoot"`
	CgroupDriver                     string            `yaml:"cgroupDriver"`
	ContainerLogMaxSize              string            `yaml:"containerLogMaxSize"`
	ContainerLogMaxFiles             int32             `yaml:"containerLogMaxFiles"`

	RootDir              string                `yaml:"rootDir" own:"true"`
	NodeLabels           map[string]string     `yaml:"nodeLabels" own:"true"`
	HostnameOverride     string                `yaml:"hostnameOverride" own:"true"`
	ContainerGC          ContainerGC           `yaml:"containerGC" own:"true"`
	MemoryAvailable      stats.MemoryAvailable `yaml:"memoryAvailable" own:"true"`
	AnnotationNamespaces []string              `yaml:"annotationNamespaces" own:"true"`
	ProtectedNamespaces  []string              `yaml:"protectedNamespaces" own:"true"`
	Breaker              bool                  `yaml:"breaker" own:"true"`
	Disk                 Mode                  `yaml:"disk" own:"true"` // whether signals of disks and inodes evict
	GC                   Mode                  `yaml:"gc" own:"true"`   // whether garbage is removed
	ContainerGCPeriod    Duration              `yaml:"containerGCPeriod" own:"true"`
	ImageGCPeriod        Duration              `yaml:"imageGCPeriod" own:"true"`
	PodGoneAfter         Duration              `yaml:"podGoneAfter" own:"true"`
	Gate                 bool                  `yaml:"gate" own:"true"`
	Preemption           bool                  `yaml:"preemption" own:"true"`
	WriteAllocatable     bool                  `yaml:"writeAllocatable" own:"true"` // never beside a kubelet
	MemoryQoS            bool                  `yaml:"memoryQoS" own:"true"`        // likewise
	RuntimeWait          Duration              `yaml:"runtimeWait" own:"true"`      // 0: for ever
	Socket               string                `yaml:"socket" own:"true"`
	SocketGroup          string                `yaml:"socketGroup" own:"true"`
	Listen               string                `yaml:"listen" own:"true"` // address and port; empty: nothing is served on the network
	TLSCertFile          string                `yaml:"tlsCertFile" own:"true"`
	TLSPrivateKeyFile    string                `yaml:"tlsPrivateKeyFile" own:"true"`
	BearerTokenFile      string                `yaml:"bearerTokenFile" own:"true"`
	Pprof                bool                  `yaml:"pprof" own:"true"` // serve profiles, on the socket
	Record               string                `yaml:"record" own:"true"`
	StateDir             string                `yaml:"stateDir" own:"true"` // records, and what a restart needs; empty: neither is kept

	LogMaxBytes int64 `yaml:"-"` // of ContainerLogMaxSize; below 0: no log is rotated

	Sysctls *admit.Sysctls `yaml:"-"` // that pods may set: the safe ones and AllowedUnsafeSysctls

	Reserved admit.Reserved `yaml:"-"` // of KubeReserved and SystemReserved; what thresholds keep back depends on the node

	Thresholds []eviction.Threshold `yaml:"-"` // hard and soft ones and the copies for allocatableMemory.available
}

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

		RootDir:              "/var/lib/kubelet",
		ContainerGC:          ContainerGC{MaxPerPodContainer: 1, MaxContainers: -1, CreatedMinAge: Duration(10 * time.Minute)},
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
		Socket:               api.DefaultSocket,
		StateDir:             "/var/lib/jettison",
	}
	if kind == KindKubelet {
		c.MemoryAvailable, c.Breaker = stats.MemoryAvailableWorkingSet, false
	}
	return c
}

// fieldError says which field is wrong; the loader adds the line.
type fieldError struct {
	field []string // path of keys: "evictionHard", "memory.available"
	err   error
}

func (e *fieldError) Error() string { return e.err.Error() }

func wrong(err error, field ...string) error { return &fieldError{field: field, err: err} }

// complete fills in what depends on other fields and checks values. What a kubelet takes and should not is an error in a file of
// our own, and a warning in a kubelet's.
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
		{"rootDir", c.RootDir}, {"podLogsDir", c.PodLogsDir}, {"staticPodPath", c.StaticPodPath}, {"socket", c.Socket}, {"record", c.Record},
		{"stateDir", c.StateDir},
	} {
		if f.value != "" && !filepath.IsAbs(f.value) {
			return wrong(fmt.Errorf("%q: want an absolute path", f.value), f.field)
		}
	}
	if c.Socket == "" && c.SocketGroup != "" { // only a file of our own can say so
		err := fmt.Errorf("%.64q may use a socket that there is none of: set socket to a path, or remove socketGroup", c.SocketGroup)
		return wrong(err, "socketGroup")
	}
	return nil
}

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

// allocatables are what enforceNodeAllocatable may have (pkg/kubelet/apis/config/validation/validation.go).
var allocatables = []string{
	"none", "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible",
}

// parseThresholds makes thresholds of the maps.
func (c *Config) parseThresholds(kind string) (warnings []string, err error) {
	settings := eviction.Settings{
		EvictionHard: c.EvictionHard, EvictionSoft: c.EvictionSoft, EvictionSoftGracePeriod: c.EvictionSoftGracePeriod,
		EvictionMinimumReclaim: c.EvictionMinimumReclaim, EnforceNodeAllocatable: c.EnforceNodeAllocatable, OwnSignals: kind == KindAgent,
	}
	thresholds, doubts, errs := settings.Parse()
	odd := func(f, format string, args ...any) {
		doubts = append(doubts, &eviction.FieldError{Field: []string{f}, Err: fmt.Errorf(format, args...)})
	}
	for _, name := range c.EnforceNodeAllocatable {
		if err := oneOf(name, allocatables); err != nil {
			errs = append(errs, &eviction.FieldError{Field: []string{"enforceNodeAllocatable"}, Err: err})
		}
	}
	if most := c.EvictionMaxPodGracePeriod; most < 0 { // the flag's help promises that the pod's own counts then
		odd("evictionMaxPodGracePeriod", "%d is negative: evictions for soft thresholds have a grace period of 1 s then", most)
	}
	if c.EvictionPressureTransitionPeriod < 0 {
		odd("evictionPressureTransitionPeriod", "%v is negative: conditions end at once then", c.EvictionPressureTransitionPeriod)
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

// zeroIsDefault: the kubelet's loader takes the zero value of these fields for an absent one, and files that tools write
// (kubeadm's among them) have it (k8s.io/kubernetes pkg/kubelet/apis/config/v1beta1/defaults.go, v1.36).
func (c *Config) zeroIsDefault() {
	d := defaults(KindKubelet)
	c.EvictionPressureTransitionPeriod = cmp.Or(c.EvictionPressureTransitionPeriod, d.EvictionPressureTransitionPeriod)
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
