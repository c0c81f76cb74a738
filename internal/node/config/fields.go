package config

import (
	"time"

	"jettison/admit"
	"jettison/eviction"
	"jettison/stats"
)

// Duration is a time.Duration in the YAML form of the kubelet's files, for example "1m30s".
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// ContainerGC has the rules for the removal of dead containers. The kubelet has them as flags only.
type ContainerGC struct {
	// MinAge: Minimum age of a dead container, counted from its creation, before it may be removed.
	MinAge Duration `yaml:"minAge"`
	// MaxPerPodContainer: Number of dead containers to keep for each container of a pod. Negative:
	// all.
	MaxPerPodContainer int32 `yaml:"maxPerPodContainer"`
	// MaxContainers: Number of dead containers to keep on the node. Negative: no limit.
	MaxContainers int32 `yaml:"maxContainers"`
	// CreatedMinAge: Minimum age, counted from its creation, before a container that was never
	// started may be removed.
	CreatedMinAge Duration `yaml:"createdMinAge"`
}

// Descheduling has the rules for pods that should leave the node although no resource is short.
type Descheduling struct {
	// Period: Time between two passes. Minimum: 10s.
	Period Duration `yaml:"period"`
	// StaleDuplicates: If several pods with ready sandboxes share a namespace and name, stop all
	// but the newest.
	StaleDuplicates bool `yaml:"staleDuplicates"`
	// FailedAfter: Stop a pod this long after its last container ended, if at least one container
	// failed and none was restarted. 0: disabled.
	FailedAfter Duration `yaml:"failedAfter"`
	// MaxRestarts: Stop a pod when its containers were restarted this often in total. 0: disabled.
	MaxRestarts int32 `yaml:"maxRestarts"`
	// IgnoreContainers: Names of containers that do not count for maxRestarts, for example init
	// containers, which the runtime does not distinguish from others.
	IgnoreContainers []string `yaml:"ignoreContainers"`
	// MaxAge: Stop pods older than this. 0: disabled.
	MaxAge Duration `yaml:"maxAge"`
	// ShedAbove: Stop pods while the node's working set exceeds this percentage of its memory:
	// BestEffort pods first, the largest first. 0: disabled.
	ShedAbove int32 `yaml:"shedAbove"`
	// MinAge: Minimum age of a pod before it may be stopped.
	MinAge Duration `yaml:"minAge"`
	// ExcludeNamespaces: Namespaces whose pods are never stopped.
	ExcludeNamespaces []string `yaml:"excludeNamespaces"`
	// EvictLocalStorage: Also stop pods that store files on the node, in an emptyDir or a hostPath
	// volume.
	EvictLocalStorage bool `yaml:"evictLocalStorage"`
	// EvictUnowned: Also stop pods without a known owner that recreates them, according to their
	// objects and labels.
	EvictUnowned bool `yaml:"evictUnowned"`
	// MaxPods: Maximum number of pods stopped in one pass. Minimum: 1.
	MaxPods int32 `yaml:"maxPods"`
	// MaxPodsOfNamespace: Maximum number of pods of one namespace stopped in one pass. 0: no limit.
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
// defaults (k8s.io/kubelet config/v1beta1). The second group, with the tag own, is jettison's: a
// kubelet's file cannot set it. The agent reads fields with the tag start only when it starts. The
// comments of fields are also the text of docs/reference/configuration.md and of "jettison config
// default": "make generate" writes both.
type Config struct {
	// EvictionHard: Hard eviction thresholds: signal to quantity or percentage, in the kubelet's
	// grammar. If set, even to an empty mapping, it replaces all defaults.
	EvictionHard map[string]string `yaml:"evictionHard"`
	// EvictionSoft: Soft eviction thresholds, in the grammar of evictionHard. The agent evicts a
	// pod when one was met for its grace period. A hard threshold that is met meanwhile acts
	// immediately. If an AgentConfiguration sets evictionSoft without evictionSoftGracePeriod, the
	// kubelet's grace periods are ignored.
	EvictionSoft map[string]string `yaml:"evictionSoft"`
	// EvictionSoftGracePeriod: How long each soft threshold must be met before the agent evicts a
	// pod: signal to duration. Required for each signal of evictionSoft.
	EvictionSoftGracePeriod map[string]string `yaml:"evictionSoftGracePeriod"`
	// EvictionMinimumReclaim: Amount above its threshold that must be available before evictions
	// for a signal stop: signal to quantity or percentage.
	EvictionMinimumReclaim map[string]string `yaml:"evictionMinimumReclaim"`
	// EvictionPressureTransitionPeriod: How long a node condition stays true after its threshold
	// was last met. 0 selects the default.
	EvictionPressureTransitionPeriod Duration `yaml:"evictionPressureTransitionPeriod"`
	// EvictionMaxPodGracePeriod: Maximum grace period, in seconds, of a pod that is evicted for a
	// soft threshold. The pod's own grace period is used if it is shorter. 0 means 1 s.
	EvictionMaxPodGracePeriod int32 `yaml:"evictionMaxPodGracePeriod"`
	// MergeDefaultEvictionSettings: Keep the default thresholds for signals that evictionHard does
	// not set.
	MergeDefaultEvictionSettings bool `yaml:"mergeDefaultEvictionSettings"`
	// ImageGCHighThresholdPercent: Disk usage, in percent of the image file system, at which the
	// agent starts to remove unused images.
	ImageGCHighThresholdPercent int32 `yaml:"imageGCHighThresholdPercent"`
	// ImageGCLowThresholdPercent: Disk usage, in percent of the image file system, at which the
	// agent stops removing unused images.
	ImageGCLowThresholdPercent int32 `yaml:"imageGCLowThresholdPercent"`
	// ImageMinimumGCAge: Minimum age of an unused image, counted from its first sighting, before it
	// may be removed. 0 selects the default.
	ImageMinimumGCAge Duration `yaml:"imageMinimumGCAge"`
	// ImageMaximumGCAge: Remove images that were unused for longer than this, regardless of disk
	// usage. 0: disabled.
	ImageMaximumGCAge Duration `yaml:"imageMaximumGCAge"`
	// EnforceNodeAllocatable: If it contains pods, each hard threshold of memory.available also
	// applies to allocatableMemory.available, which exists if the cgroup above all pods has a
	// limit. It also selects the limit that writeAllocatable writes: node allocatable with pods,
	// node capacity without. The kubelet's other values are accepted and have no effect.
	EnforceNodeAllocatable []string `yaml:"enforceNodeAllocatable"`
	// KubeReserved: Resources reserved for the kubelet and the runtime: cpu, memory,
	// ephemeral-storage and pid (number of tasks) to quantity. See
	// start/configure.md#node-allocatable.
	KubeReserved map[string]string `yaml:"kubeReserved"`
	// SystemReserved: Resources reserved for the rest of the system, in the form of kubeReserved.
	SystemReserved map[string]string `yaml:"systemReserved"`
	// MemoryThrottlingFactor: With memoryQoS, the point between its request and its limit at which
	// a container is throttled, at most 1. 0: no throttling.
	MemoryThrottlingFactor float64 `yaml:"memoryThrottlingFactor" start:"true"`
	// RegisterWithTaints: Taints of the node, in the form of the Kubernetes API. Without a kubelet,
	// the agent rejects pods that do not tolerate a NoExecute taint.
	RegisterWithTaints []Taint `yaml:"registerWithTaints"`
	// AllowedUnsafeSysctls: Unsafe sysctls that pods may set, in addition to the safe ones. A
	// pattern may end in *.
	AllowedUnsafeSysctls []string `yaml:"allowedUnsafeSysctls"`
	// MaxPods: Maximum number of pods on a node without a kubelet. 0 selects the default.
	MaxPods int32 `yaml:"maxPods"`
	// PodsPerCore: Maximum number of pods per CPU core on a node without a kubelet, never above
	// maxPods. 0: no limit per core.
	PodsPerCore int32 `yaml:"podsPerCore"`
	// LocalStorageCapacityIsolation: Evict pods that exceed their own limits on local storage. The
	// limits come from pod objects (socket, staticPodPath).
	LocalStorageCapacityIsolation bool `yaml:"localStorageCapacityIsolation"`
	// ContainerRuntimeEndpoint: Socket of the container runtime (CRI): unix:///PATH, unix:/PATH or
	// /PATH. Empty: the agent finds it among the usual sockets. See
	// start/configure.md#runtime-socket.
	ContainerRuntimeEndpoint string `yaml:"containerRuntimeEndpoint" start:"true"`
	// ImageServiceEndpoint: Socket of the CRI image service. Empty: the value of
	// containerRuntimeEndpoint.
	ImageServiceEndpoint string `yaml:"imageServiceEndpoint" start:"true"`
	// PodLogsDir: Directory of the pods' logs.
	PodLogsDir string `yaml:"podLogsDir" start:"true"`
	// StaticPodPath: File or directory of static pod manifests, from which the agent reads the
	// objects of these pods. Empty: no manifests.
	StaticPodPath string `yaml:"staticPodPath" start:"true"`
	// CgroupRoot: Cgroup that contains kubepods or kubepods.slice. Empty: the root of the
	// hierarchy.
	CgroupRoot string `yaml:"cgroupRoot" start:"true"`
	// CgroupDriver: cgroupfs or systemd. The agent only checks the value: it recognizes the cgroup
	// names of both drivers.
	CgroupDriver string `yaml:"cgroupDriver"`
	// ContainerLogMaxSize: Size at which a container's log is rotated on a node without a kubelet.
	// Negative: logs are not rotated.
	ContainerLogMaxSize string `yaml:"containerLogMaxSize" start:"true"`
	// ContainerLogMaxFiles: Maximum number of log files per container, including the current one.
	// Minimum: 2.
	ContainerLogMaxFiles int32 `yaml:"containerLogMaxFiles" start:"true"`

	// RootDir: The kubelet's root directory. Its file system is nodefs, and it contains the volumes
	// of pods. If it does not exist, its nearest existing parent directory is nodefs.
	RootDir string `yaml:"rootDir" own:"true" start:"true"`
	// NodeLabels: Additional labels of the node; the kubelet's labels (hostname, architecture,
	// operating system) are always present. Without a kubelet, node selectors and affinity of pods
	// must match these labels.
	NodeLabels map[string]string `yaml:"nodeLabels" own:"true"`
	// HostnameOverride: Name of the node. Spaces around it are removed and letters are lowercased,
	// as in the kubelet. Empty: the hostname of process 1 if the agent shares its UTS namespace,
	// else unknown. While the name is unknown, no pod is rejected for the node's name or labels.
	HostnameOverride string `yaml:"hostnameOverride" own:"true"`
	// ContainerGC: Rules for the removal of dead containers. The kubelet has flags instead.
	ContainerGC ContainerGC `yaml:"containerGC" own:"true"`
	// MemoryAvailable: Formula of memory.available. workingSet: the kubelet's, capacity - (anon +
	// file - inactive_file), which omits the kernel's own memory. kernel: MemAvailable plus free
	// pages on per-CPU lists and what ZFS' cache gives back. lower: the lower of both. The capacity
	// is without huge pages.
	MemoryAvailable stats.MemoryAvailable `yaml:"memoryAvailable" own:"true"`
	// AnnotationNamespaces: Namespaces in which the annotations jettison/priority,
	// jettison/memory-request (a quantity) and jettison/never-evict: "true" are in effect. The
	// agent ignores them in other namespaces, so that a tenant cannot protect its own pods.
	AnnotationNamespaces []string `yaml:"annotationNamespaces" own:"true"`
	// ProtectedNamespaces: Namespaces with pods that are never evicted while their priority is
	// unknown.
	ProtectedNamespaces []string `yaml:"protectedNamespaces" own:"true"`
	// Breaker: Stop evictions for a threshold after three in a row that did not lower the pressure
	// because something outside the pods, or a protected pod, grew. The log names its cgroup. The
	// breaker closes when the threshold is no longer met. While it is open, the agent evicts one
	// more pod if the first in the ranking is new or has grown. Each such eviction without effect
	// is followed by a pause: 30 s, doubled each time up to 5 min. A replacement of a pod evicted
	// without effect (same namespace and name, except for the generated suffix) is not new.
	Breaker bool `yaml:"breaker" own:"true"`
	// Disk: act: disk and inode signals evict pods. observe: they only set conditions, and the
	// kubelet enforces limits on local storage. Empty: observe on a node with a kubelet, else act.
	// See start/configure.md#kubelet-detection and start/configure.md#disk-pressure.
	Disk Mode `yaml:"disk" own:"true"`
	// GC: act: garbage collection removes garbage. observe: it only plans and reports. Empty:
	// observe on a node with a kubelet, else act. See operate/garbage-collection.md.
	GC Mode `yaml:"gc" own:"true"`
	// ContainerGCPeriod: Time between two passes for containers, sandboxes, logs, links and
	// cgroups. Minimum: 1s. 0: only under disk pressure.
	ContainerGCPeriod Duration `yaml:"containerGCPeriod" own:"true"`
	// ImageGCPeriod: Time between two passes for images. Minimum: 1s. 0: only under disk pressure.
	ImageGCPeriod Duration `yaml:"imageGCPeriod" own:"true"`
	// PodGoneAfter: Time after which a pod is gone, so that garbage collection removes its
	// leftovers: it has no pod object, no manifest, no ready sandbox and no process for this long.
	PodGoneAfter Duration `yaml:"podGoneAfter" own:"true"`
	// Gate: Reject the restart of an evicted pod through NRI during its hold-off: 10 s, doubled
	// with each eviction up to 5 minutes, and longer while the resource stays short. Without a
	// kubelet, the gate also rejects pods that a kubelet would not admit. false: no pod is
	// rejected.
	Gate bool `yaml:"gate" own:"true" start:"true"`
	// Preemption: Without a kubelet, stop other pods when the gate rejects a critical pod only for
	// missing resources: as few as possible, BestEffort pods first, each in its own grace period.
	// The first start of the critical pod fails; the freed resources are reserved for its retry for
	// 30 s. false: only root's command jettison admit --preempt stops pods.
	Preemption bool `yaml:"preemption" own:"true" start:"true"`
	// WriteAllocatable: Without a kubelet, limit the cgroup above all pods to node allocatable. See
	// start/configure.md#node-allocatable.
	WriteAllocatable bool `yaml:"writeAllocatable" own:"true" start:"true"`
	// MemoryQoS: Without a kubelet, protect the memory that pods request, and throttle containers
	// before they reach their limit. See start/configure.md#memory-qos.
	MemoryQoS bool `yaml:"memoryQoS" own:"true" start:"true"`
	// RuntimeWait: How long the agent waits for the runtime's first answer before it exits. 0:
	// forever. After the first answer, an unreachable runtime never ends the agent.
	RuntimeWait Duration `yaml:"runtimeWait" own:"true" start:"true"`
	// Socket: Path of the agent's socket. Empty: no socket; jettison status and jettison health,
	// the DaemonSet's probe, cannot reach the agent. See reference/socket.md.
	Socket string `yaml:"socket" own:"true" start:"true"`
	// SocketGroup: Group, by name or number, with members that may read from the socket, and put
	// and delete pod objects. An error if socket is empty.
	SocketGroup string `yaml:"socketGroup" own:"true" start:"true"`
	// Listen: IP address and port on which the agent serves the socket's read-only endpoints on the
	// network. Any address except loopback requires tlsCertFile, tlsPrivateKeyFile and
	// bearerTokenFile.
	Listen string `yaml:"listen" own:"true" start:"true"`
	// TLSCertFile: Certificate for listen, PEM. The agent reloads the file when it changes.
	TLSCertFile string `yaml:"tlsCertFile" own:"true" start:"true"`
	// TLSPrivateKeyFile: Private key of tlsCertFile, PEM. The agent reloads the file when it
	// changes.
	TLSPrivateKeyFile string `yaml:"tlsPrivateKeyFile" own:"true" start:"true"`
	// BearerTokenFile: File with the token that clients of listen send, at least 16 bytes. The
	// agent reloads the file when it changes.
	BearerTokenFile string `yaml:"bearerTokenFile" own:"true" start:"true"`
	// Pprof: Serve profiles of the agent on the socket, only to root.
	Pprof bool `yaml:"pprof" own:"true" start:"true"`
	// Record: File to which the agent records looks, decisions and kills. Empty: no recording. See
	// operate/read.md#replay.
	Record string `yaml:"record" own:"true" start:"true"`
	// StateDir: Directory for eviction records, for the state that a restarted agent resumes from,
	// and for the history of garbage collection. Empty: no state is kept. See
	// operate/read.md#records.
	StateDir string `yaml:"stateDir" own:"true" start:"true"`

	// Pods: off: only a kubelet runs pods on the node. No other value exists yet.
	Pods string `yaml:"pods" own:"true"`
	// Deschedule: off: disabled. report: the agent logs the pods that should leave the node
	// according to descheduling. act: the agent also stops them; with a kubelet, which would
	// restart them, it acts as report. See operate/descheduling.md.
	Deschedule string `yaml:"deschedule" own:"true"`
	// Descheduling: Rules for the pods that should leave this node.
	Descheduling Descheduling `yaml:"descheduling" own:"true"`

	// LogMaxBytes is ContainerLogMaxSize in bytes; negative: logs are not rotated.
	LogMaxBytes int64 `yaml:"-"`
	// Sysctls are those that pods may set: the safe ones and AllowedUnsafeSysctls.
	Sysctls *admit.Sysctls `yaml:"-"`
	// Reserved is KubeReserved and SystemReserved, parsed. The part that thresholds reserve depends on
	// the node and is not included.
	Reserved admit.Reserved `yaml:"-"`
	// Thresholds are the hard and soft ones, and the copies for allocatableMemory.available.
	Thresholds []eviction.Threshold `yaml:"-"`
}
