package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"jettison/internal/base/nearest"
	"jettison/internal/base/strict"
	"jettison/stats"
)

// kubeletFields are the top-level fields of a KubeletConfiguration (k8s.io/kubelet config/v1beta1
// types.go, v1.37). The package itself would add its dependencies to the binary.
var kubeletFields = setOf(strings.Fields(`
	address allowedUnsafeSysctls authentication authorization cgroupDriver cgroupRoot cgroupsPerQOS
	clusterDNS clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles
	containerLogMaxSize containerLogMaxWorkers containerLogMonitorInterval containerRuntimeEndpoint
	contentType cpuCFSQuota cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions
	cpuManagerReconcilePeriod crashLoopBackOff defaultPodSysctls enableContentionProfiling
	enableControllerAttachDetach enableDebugFlagsHandler enableDebuggingHandlers
	enableProfilingHandler enableServer enableSystemLogHandler enableSystemLogQuery
	enforceNodeAllocatable eventBurst eventRecordQPS evictionHard evictionMaxPodGracePeriod
	evictionMinimumReclaim evictionPressureTransitionPeriod evictionSoft evictionSoftGracePeriod
	failCgroupV1 failSwapOn featureGates fileCheckFrequency hairpinMode healthzBindAddress
	healthzPort httpCheckFrequency imageGCHighThresholdPercent imageGCLowThresholdPercent
	imageMaximumGCAge imageMinimumGCAge imagePullCredentialsVerificationPolicy imageServiceEndpoint
	iptablesDropBit iptablesMasqueradeBit kernelMemcgNotification kubeAPIBurst kubeAPIQPS
	kubeReserved kubeReservedCgroup kubeletCgroups localStorageCapacityIsolation logging
	makeIPTablesUtilChains maxOpenFiles maxParallelImagePulls maxPods memoryManagerPolicy
	memoryReservationPolicy memorySwap memoryThrottlingFactor mergeDefaultEvictionSettings
	nodeLeaseDurationSeconds nodeStatusMaxImages nodeStatusReportFrequency nodeStatusUpdateFrequency
	oomScoreAdj podCIDR podLogsDir podPidsLimit podsPerCore port
	preloadedImagesVerificationAllowlist protectKernelDefaults providerID qosReserved readOnlyPort
	registerNode registerWithTaints registryBurst registryPullQPS reservedMemory reservedSystemCPUs
	resolvConf rotateCertificates runOnce runtimeRequestTimeout seccompDefault serializeImagePulls
	serverTLSBootstrap showHiddenMetricsForVersion shutdownGracePeriod
	shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods singleProcessOOMKill
	staticPodPath staticPodURL staticPodURLHeader streamingConnectionIdleTimeout syncFrequency
	systemCgroups systemReserved systemReservedCgroup tlsCertFile tlsCipherSuites
	tlsCurvePreferences tlsMinVersion tlsPrivateKeyFile topologyManagerPolicy
	topologyManagerPolicyOptions topologyManagerScope tracing userNamespaces volumePluginDir
	volumeStatsAggPeriod
`))

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// hint returns the end of the error about an unknown field of an AgentConfiguration.
func hint(path []string) string {
	if len(path) == 1 && isSignal(path[0]) {
		return ": the signal belongs in evictionHard or evictionSoft"
	}
	return ""
}

// hintForKubelet returns the end of the warning about an unknown field of a KubeletConfiguration:
// where it belongs, or the most similar field of a kubelet.
func hintForKubelet(path []string) string {
	name := path[len(path)-1]
	switch _, own := strict.Index(reflect.TypeFor[Config]())[name]; {
	case len(path) > 1:
		return ""
	case isSignal(name):
		return hint(path)
	case own:
		return ": it is a field of " + KindAgent
	}
	if signal := nearest.Name(name, maps.Keys(setOf(signalNames()))); strings.Contains(name, ".") && signal != "" {
		return fmt.Sprintf(": did you mean the signal %q in evictionHard?", signal)
	}
	return nearest.Question(name, maps.Keys(kubeletFields))
}

// signalNames returns the names of all signals.
func signalNames() []string {
	out := []string{string(stats.SignalMemoryPressureFull), string(stats.SignalMemoryPressureSome),
		string(stats.SignalIOPressureFull), string(stats.SignalCPUPressureSome)}
	for _, s := range stats.Signals {
		out = append(out, string(s))
	}
	return out
}

func isSignal(name string) bool { return slices.Contains(signalNames(), name) }
