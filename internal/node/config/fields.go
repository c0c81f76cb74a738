package config

import (
	"time"

	"jettison/admit"
	"jettison/eviction"
	"jettison/stats"
)

// Duration is a time.Duration that YAML writes as "1m30s", as the kubelet's files do.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// ContainerGC is when dead containers are removed; the kubelet takes these as flags only.
type ContainerGC struct {
	// MinAge: a container that ended later stays.
	MinAge Duration `yaml:"minAge"`
	// MaxPerPodContainer: how many dead ones of one container of a pod stay; below 0: all.
	MaxPerPodContainer int32 `yaml:"maxPerPodContainer"`
	// MaxContainers: how many dead ones stay in all; below 0: any number.
	MaxContainers int32 `yaml:"maxContainers"`
	// CreatedMinAge: a container that was created and never started is garbage after that.
	CreatedMinAge Duration `yaml:"createdMinAge"`
}

// Descheduling is which pods should not be on the node any more, though it is short of nothing.
type Descheduling struct {
	// Period: time between two passes: at least 10s.
	Period Duration `yaml:"period"`
	// StaleDuplicates: of pods of one name with ready sandboxes only the newest stays.
	StaleDuplicates bool `yaml:"staleDuplicates"`
	// FailedAfter: a pod goes so long after its last container has ended, if one of them ended badly
	// and none was started again; 0: none.
	FailedAfter Duration `yaml:"failedAfter"`
	// MaxRestarts: a pod goes whose containers were started again so often, all together; 0: none.
	MaxRestarts int32 `yaml:"maxRestarts"`
	// IgnoreContainers: names of containers whose restarts do not count, as init containers, which a
	// runtime cannot tell from others.
	IgnoreContainers []string `yaml:"ignoreContainers"`
	// MaxAge: an older pod goes; 0: none.
	MaxAge Duration `yaml:"maxAge"`
	// ShedAbove: percent of the node's memory in use (its working set) above which pods go, BestEffort
	// ones first, the largest first; 0: none.
	ShedAbove int32 `yaml:"shedAbove"`
	// MinAge: a younger pod stays.
	MinAge Duration `yaml:"minAge"`
	// ExcludeNamespaces: whose pods stay.
	ExcludeNamespaces []string `yaml:"excludeNamespaces"`
	// EvictLocalStorage: pods that keep files on the node may go, too: they have an emptyDir or a
	// directory of the node's.
	EvictLocalStorage bool `yaml:"evictLocalStorage"`
	// EvictUnowned: pods may go, too, of which neither an object nor their labels tell that something
	// makes them again.
	EvictUnowned bool `yaml:"evictUnowned"`
	// MaxPods: how many go in one pass: at least 1.
	MaxPods int32 `yaml:"maxPods"`
	// MaxPodsOfNamespace: likewise, of one namespace; 0: any number.
	MaxPodsOfNamespace int32 `yaml:"maxPodsOfNamespace"`
}

// Taint is a taint of registerWithTaints (k8s.io/api/core/v1 Taint).
type Taint struct {
	Key       string `yaml:"key"`
	Value     string `yaml:"value"`
	Effect    string `yaml:"effect"`
	TimeAdded string `yaml:"timeAdded"`
}

// Config is a loaded configuration. The first group of fields has the kubelet's names, grammar and
// defaults (k8s.io/kubelet config/v1beta1); the second is this project's own, and a kubelet's file
// cannot set it (own). What the agent reads once, when it starts, is marked (start): a change takes
// effect at the next one. The comments of fields are also the reference page and the file of
// "config default": "make generate" writes both.
type Config struct {
	// EvictionHard: signal to quantity or percentage, in the kubelet's grammar and with its error
	// texts. A map that is given, even an empty one, replaces all defaults.
	EvictionHard map[string]string `yaml:"evictionHard"`
	// EvictionSoft: thresholds that evict only when met for their grace period, in the grammar of
	// evictionHard. A hard threshold that is met meanwhile does not wait. In a file of our own that
	// has it and no evictionSoftGracePeriod, a kubelet's grace periods do not count.
	EvictionSoft map[string]string `yaml:"evictionSoft"`
	// EvictionSoftGracePeriod: for how long a soft threshold has to be met, by signal: each signal of
	// evictionSoft has one.
	EvictionSoftGracePeriod map[string]string `yaml:"evictionSoftGracePeriod"`
	// EvictionMinimumReclaim: how much beyond its threshold must be available before an eviction that
	// was begun is over.
	EvictionMinimumReclaim map[string]string `yaml:"evictionMinimumReclaim"`
	// EvictionPressureTransitionPeriod: how long a condition stays true after it was last observed.
	EvictionPressureTransitionPeriod Duration `yaml:"evictionPressureTransitionPeriod"`
	// EvictionMaxPodGracePeriod: seconds: a pod that a soft threshold evicts gets its own grace
	// period, up to this. 0 ends as 1 s.
	EvictionMaxPodGracePeriod int32 `yaml:"evictionMaxPodGracePeriod"`
	// MergeDefaultEvictionSettings: the defaults stay for signals that evictionHard does not name.
	MergeDefaultEvictionSettings bool `yaml:"mergeDefaultEvictionSettings"`
	// ImageGCHighThresholdPercent: image usage of its disk, in percent, at which images go.
	ImageGCHighThresholdPercent int32 `yaml:"imageGCHighThresholdPercent"`
	// ImageGCLowThresholdPercent: image usage of its disk, in percent, until which images go.
	ImageGCLowThresholdPercent int32 `yaml:"imageGCLowThresholdPercent"`
	// ImageMinimumGCAge: unused images that are younger stay. 0 is the default.
	ImageMinimumGCAge Duration `yaml:"imageMinimumGCAge"`
	// ImageMaximumGCAge: unused images that are older go; 0: no image goes for its age.
	ImageMaximumGCAge Duration `yaml:"imageMaximumGCAge"`
	// EnforceNodeAllocatable: with pods each hard memory.available is one for
	// allocatableMemory.available too, which is observed where the cgroup above all pods has a limit.
	// It also says what writeAllocatable writes as that limit: with pods what is allocatable, without
	// it the whole capacity. The other words do nothing.
	EnforceNodeAllocatable []string `yaml:"enforceNodeAllocatable"`
	// KubeReserved: cpu, memory, ephemeral-storage and pid (a number of tasks) that are kept back from
	// pods for the kubelet and the runtime, as quantities. More:
	// start/configure.md#node-allocatable.
	KubeReserved map[string]string `yaml:"kubeReserved"`
	// SystemReserved: the same for the rest of the system.
	SystemReserved map[string]string `yaml:"systemReserved"`
	// MemoryThrottlingFactor: where between its request and its limit a container is throttled, with
	// memoryQoS: above 0, at most 1.
	MemoryThrottlingFactor float64 `yaml:"memoryThrottlingFactor" start:"true"`
	// RegisterWithTaints: taints of the node, in the API's form, else an error: without a kubelet a
	// pod that does not tolerate a NoExecute one is refused.
	RegisterWithTaints []Taint `yaml:"registerWithTaints"`
	// AllowedUnsafeSysctls: sysctls, or patterns that end in *, that pods may set beside the safe
	// ones.
	AllowedUnsafeSysctls []string `yaml:"allowedUnsafeSysctls"`
	// MaxPods: how many pods the node takes without a kubelet. 0 is the default.
	MaxPods int32 `yaml:"maxPods"`
	// PodsPerCore: how many pods a core the node takes without a kubelet, where that is fewer than
	// maxPods; 0: as many as maxPods.
	PodsPerCore int32 `yaml:"podsPerCore"`
	// LocalStorageCapacityIsolation: pods over limits of their own on local storage are evicted; the
	// limits are known from pod objects (socket, staticPodPath).
	LocalStorageCapacityIsolation bool `yaml:"localStorageCapacityIsolation"`
	// ContainerRuntimeEndpoint: the CRI socket, as unix:///PATH, unix:/PATH or /PATH. Empty: the one
	// of the usual sockets that is there. More: start/configure.md#runtime-socket.
	ContainerRuntimeEndpoint string `yaml:"containerRuntimeEndpoint" start:"true"`
	// ImageServiceEndpoint: the socket of the CRI image service; empty: that of
	// containerRuntimeEndpoint.
	ImageServiceEndpoint string `yaml:"imageServiceEndpoint" start:"true"`
	// PodLogsDir: where the logs of pods lie.
	PodLogsDir string `yaml:"podLogsDir" start:"true"`
	// StaticPodPath: a file or directory of static pod manifests: the objects of those pods; empty:
	// none.
	StaticPodPath string `yaml:"staticPodPath" start:"true"`
	// CgroupRoot: the cgroup below which kubepods or kubepods.slice lies; empty: the root of the
	// hierarchy.
	CgroupRoot string `yaml:"cgroupRoot" start:"true"`
	// CgroupDriver: checked for its value; both drivers' names are recognised by their shape.
	CgroupDriver string `yaml:"cgroupDriver"`
	// ContainerLogMaxSize: without a kubelet, a container's log of this size is rotated; negative:
	// none is.
	ContainerLogMaxSize string `yaml:"containerLogMaxSize" start:"true"`
	// ContainerLogMaxFiles: how many logs of a container are kept, the current one included; at least
	// 2.
	ContainerLogMaxFiles int32 `yaml:"containerLogMaxFiles" start:"true"`

	// RootDir: the kubelet's root directory: its file system is nodefs, and volumes of pods lie below
	// it. Where it does not exist, the nearest directory above it counts.
	RootDir string `yaml:"rootDir" own:"true" start:"true"`
	// NodeLabels: labels of the node beside those that a kubelet gives it (hostname, architecture,
	// operating system): what a pod's node selector and affinity are asked of, without a kubelet; keys
	// and values in the API's form, else an error.
	NodeLabels map[string]string `yaml:"nodeLabels" own:"true"`
	// HostnameOverride: the node's name, trimmed and in small letters as a kubelet makes it; blanks
	// alone are an error. Without it that is the hostname of process 1, where the agent shares its UTS
	// namespace, and else unknown: then neither name nor labels refuse a pod.
	HostnameOverride string `yaml:"hostnameOverride" own:"true"`
	// ContainerGC: which dead containers go; a kubelet takes these as flags.
	ContainerGC ContainerGC `yaml:"containerGC" own:"true"`
	// MemoryAvailable: workingSet: the kubelet's formula, capacity - (anon + file - inactive_file),
	// which does not see the kernel's own memory; kernel: MemAvailable and what is free on per-CPU
	// lists; lower: the lower of both.
	MemoryAvailable stats.MemoryAvailable `yaml:"memoryAvailable" own:"true"`
	// AnnotationNamespaces: where jettison/priority, jettison/memory-request (a quantity) and
	// jettison/never-evict: "true" count. Elsewhere they are ignored: a tenant must not make itself
	// immune.
	AnnotationNamespaces []string `yaml:"annotationNamespaces" own:"true"`
	// ProtectedNamespaces: pods here are no victims while their priority is unknown.
	ProtectedNamespaces []string `yaml:"protectedNamespaces" own:"true"`
	// Breaker: evictions for a threshold stop after three that did not lower the pressure, because
	// something else grew meanwhile: something outside the pods, or a pod that may not go. The log
	// names its cgroup. They go on once it is not met any more; one more pod goes where the first in
	// the ranking is new, or has grown. If that was in vain the next one waits 30 s, doubled each time
	// up to 5 min. One that was made in the place of a pod that went in vain, by its namespace and
	// name but for what was generated of that, is not new.
	Breaker bool `yaml:"breaker" own:"true"`
	// Disk: act: signals of disks and inodes evict; observe: they only set conditions, and limits on
	// local storage are left to the kubelet. Empty: act, and observe beside a kubelet. More:
	// start/configure.md#kubelet-detection and start/configure.md#disk-pressure.
	Disk Mode `yaml:"disk" own:"true"`
	// GC: act: garbage is removed; observe: garbage collection plans and reports, and removes nothing.
	// Empty: act, and observe beside a kubelet. More: operate/garbage-collection.md.
	GC Mode `yaml:"gc" own:"true"`
	// ContainerGCPeriod: time between two passes for containers, sandboxes, logs, links and cgroups:
	// at least 1s; 0: only under disk pressure.
	ContainerGCPeriod Duration `yaml:"containerGCPeriod" own:"true"`
	// ImageGCPeriod: time between two passes for images: at least 1s; 0: only under disk pressure.
	ImageGCPeriod Duration `yaml:"imageGCPeriod" own:"true"`
	// PodGoneAfter: a pod that no client or manifest names, without a ready sandbox and without a
	// process for so long, is gone: all that it left goes.
	PodGoneAfter Duration `yaml:"podGoneAfter" own:"true"`
	// Gate: an evicted pod that comes back under its UID is kept out through NRI: 10 s, doubled each
	// time up to 5 minutes, and as long as what it was evicted for is short. Without a kubelet a pod
	// that a kubelet would not take is refused, too. false: no pod is kept out or refused.
	Gate bool `yaml:"gate" own:"true" start:"true"`
	// Preemption: without a kubelet, a critical pod that the runtime is refused for want of room alone
	// has others stopped, each in its own grace period: the fewest, BestEffort ones first. The runtime
	// is refused all the same; when it asks again the room is there, kept for 30 s. false: only root's
	// jettison admit --preempt does so.
	Preemption bool `yaml:"preemption" own:"true" start:"true"`
	// WriteAllocatable: without a kubelet, the cgroup above all pods is limited to what is left for
	// pods. More: start/configure.md#node-allocatable.
	WriteAllocatable bool `yaml:"writeAllocatable" own:"true" start:"true"`
	// MemoryQoS: without a kubelet, memory that pods request is protected, and containers are
	// throttled before they reach their limit. More: start/configure.md#memory-qos.
	MemoryQoS bool `yaml:"memoryQoS" own:"true" start:"true"`
	// RuntimeWait: how long run waits for the runtime's first answer; 0: for ever. The log says at
	// once that it waits, and for what. Once it has answered, its loss never ends the agent.
	RuntimeWait Duration `yaml:"runtimeWait" own:"true" start:"true"`
	// Socket: the agent's socket; empty: none, and then neither status nor health, a DaemonSet's
	// probe, has whom to ask. More: reference/socket.md.
	Socket string `yaml:"socket" own:"true" start:"true"`
	// SocketGroup: a group, by name or number, whose members may read, put and delete pods there; with
	// an empty socket an error.
	SocketGroup string `yaml:"socketGroup" own:"true" start:"true"`
	// Listen: an IP address and a port at which what can be read is served on the network; loopback as
	// it is, any other address only with the next three.
	Listen string `yaml:"listen" own:"true" start:"true"`
	// TLSCertFile: a certificate for listen, PEM; read again when it changes.
	TLSCertFile string `yaml:"tlsCertFile" own:"true" start:"true"`
	// TLSPrivateKeyFile: the key of tlsCertFile, PEM; read again when it changes.
	TLSPrivateKeyFile string `yaml:"tlsPrivateKeyFile" own:"true" start:"true"`
	// BearerTokenFile: a file with the token that clients of listen send, 16 bytes at least; read
	// again when it changes.
	BearerTokenFile string `yaml:"bearerTokenFile" own:"true" start:"true"`
	// Pprof: profiles of the agent are served on the socket, to root.
	Pprof bool `yaml:"pprof" own:"true" start:"true"`
	// Record: a file that looks, decisions and kills are recorded to; empty: none. More:
	// operate/read.md#replay.
	Record string `yaml:"record" own:"true" start:"true"`
	// StateDir: a directory for records, for what a restarted agent goes on from, and for what garbage
	// collection remembers; empty: none is kept. More: operate/read.md#records.
	StateDir string `yaml:"stateDir" own:"true" start:"true"`

	// Pods: off: nobody but a kubelet runs the node's pods. There is no other value yet.
	Pods string `yaml:"pods" own:"true"`
	// Deschedule: report: the log says which pods should not be on this node any more, by
	// descheduling; act: they are stopped, too, but beside a kubelet, which would start them again,
	// this is report; off: nobody asks. More: operate/descheduling.md.
	Deschedule string `yaml:"deschedule" own:"true"`
	// Descheduling: which pods should not be on this node any more.
	Descheduling Descheduling `yaml:"descheduling" own:"true"`

	LogMaxBytes int64 `yaml:"-"` // of ContainerLogMaxSize; below 0: no log is rotated

	Sysctls *admit.Sysctls `yaml:"-"` // that pods may set: the safe ones and AllowedUnsafeSysctls

	// of KubeReserved and SystemReserved; what thresholds keep back depends on the node
	Reserved admit.Reserved `yaml:"-"`

	// hard and soft ones and the copies for allocatableMemory.available
	Thresholds []eviction.Threshold `yaml:"-"`
}
