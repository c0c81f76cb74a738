package descheduler

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/descheduler/pkg/api"
	"sigs.k8s.io/descheduler/pkg/api/v1alpha2"
	"sigs.k8s.io/descheduler/pkg/descheduler/scheme"
	registry "sigs.k8s.io/descheduler/pkg/framework/pluginregistry"
	evictor "sigs.k8s.io/descheduler/pkg/framework/plugins/defaultevictor"
	utilization "sigs.k8s.io/descheduler/pkg/framework/plugins/nodeutilization"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/podlifetime"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/removeduplicates"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/removefailedpods"
	restarts "sigs.k8s.io/descheduler/pkg/framework/plugins/removepodshavingtoomanyrestarts"
	anti "sigs.k8s.io/descheduler/pkg/framework/plugins/removepodsviolatinginterpodantiaffinity"
	affine "sigs.k8s.io/descheduler/pkg/framework/plugins/removepodsviolatingnodeaffinity"
	taints "sigs.k8s.io/descheduler/pkg/framework/plugins/removepodsviolatingnodetaints"
	spread "sigs.k8s.io/descheduler/pkg/framework/plugins/removepodsviolatingtopologyspreadconstraint"
)

// register registers the plugins, as the descheduler does at its start. Its own function for that
// links an API server.
func register() {
	all := registry.NewRegistry()
	registry.PluginRegistry = all
	registry.Register(evictor.PluginName, evictor.New, &evictor.DefaultEvictor{}, &evictor.DefaultEvictorArgs{},
		evictor.ValidateDefaultEvictorArgs, evictor.SetDefaults_DefaultEvictorArgs, all)
	registry.Register(utilization.LowNodeUtilizationPluginName, utilization.NewLowNodeUtilization, &utilization.LowNodeUtilization{},
		&utilization.LowNodeUtilizationArgs{}, utilization.ValidateLowNodeUtilizationArgs, utilization.SetDefaults_LowNodeUtilizationArgs, all)
	registry.Register(utilization.HighNodeUtilizationPluginName, utilization.NewHighNodeUtilization, &utilization.HighNodeUtilization{},
		&utilization.HighNodeUtilizationArgs{}, utilization.ValidateHighNodeUtilizationArgs, utilization.SetDefaults_HighNodeUtilizationArgs, all)
	registry.Register(podlifetime.PluginName, podlifetime.New, &podlifetime.PodLifeTime{}, &podlifetime.PodLifeTimeArgs{},
		podlifetime.ValidatePodLifeTimeArgs, podlifetime.SetDefaults_PodLifeTimeArgs, all)
	registry.Register(removeduplicates.PluginName, removeduplicates.New, &removeduplicates.RemoveDuplicates{},
		&removeduplicates.RemoveDuplicatesArgs{}, removeduplicates.ValidateRemoveDuplicatesArgs,
		removeduplicates.SetDefaults_RemoveDuplicatesArgs, all)
	registry.Register(removefailedpods.PluginName, removefailedpods.New, &removefailedpods.RemoveFailedPods{},
		&removefailedpods.RemoveFailedPodsArgs{}, removefailedpods.ValidateRemoveFailedPodsArgs,
		removefailedpods.SetDefaults_RemoveFailedPodsArgs, all)
	registry.Register(restarts.PluginName, restarts.New, &restarts.RemovePodsHavingTooManyRestarts{},
		&restarts.RemovePodsHavingTooManyRestartsArgs{}, restarts.ValidateRemovePodsHavingTooManyRestartsArgs,
		restarts.SetDefaults_RemovePodsHavingTooManyRestartsArgs, all)
	registry.Register(anti.PluginName, anti.New, &anti.RemovePodsViolatingInterPodAntiAffinity{},
		&anti.RemovePodsViolatingInterPodAntiAffinityArgs{}, anti.ValidateRemovePodsViolatingInterPodAntiAffinityArgs,
		anti.SetDefaults_RemovePodsViolatingInterPodAntiAffinityArgs, all)
	registry.Register(affine.PluginName, affine.New, &affine.RemovePodsViolatingNodeAffinity{}, &affine.RemovePodsViolatingNodeAffinityArgs{},
		affine.ValidateRemovePodsViolatingNodeAffinityArgs, affine.SetDefaults_RemovePodsViolatingNodeAffinityArgs, all)
	registry.Register(taints.PluginName, taints.New, &taints.RemovePodsViolatingNodeTaints{}, &taints.RemovePodsViolatingNodeTaintsArgs{},
		taints.ValidateRemovePodsViolatingNodeTaintsArgs, taints.SetDefaults_RemovePodsViolatingNodeTaintsArgs, all)
	registry.Register(spread.PluginName, spread.New, &spread.RemovePodsViolatingTopologySpreadConstraint{},
		&spread.RemovePodsViolatingTopologySpreadConstraintArgs{}, spread.ValidateRemovePodsViolatingTopologySpreadConstraintArgs,
		spread.SetDefaults_RemovePodsViolatingTopologySpreadConstraintArgs, all)
}

// readPolicy reads a policy with the descheduler's own types, defaults and checks. The evictor
// filters in every profile, as in the descheduler.
func readPolicy(t testing.TB, text []byte) *api.DeschedulerPolicy {
	t.Helper()
	p := &api.DeschedulerPolicy{}
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDecoder(v1alpha2.SchemeGroupVersion, api.SchemeGroupVersion), text, p); err != nil {
		t.Fatalf("read the policy with the descheduler: %v\n%s", err, text)
	}
	for i := range p.Profiles {
		profile := &p.Profiles[i]
		if !slices.Contains(profile.Plugins.Filter.Enabled, evictor.PluginName) {
			profile.Plugins.Filter.Enabled = append(profile.Plugins.Filter.Enabled, evictor.PluginName)
			profile.Plugins.PreEvictionFilter.Enabled = append(profile.Plugins.PreEvictionFilter.Enabled, evictor.PluginName)
		}
		for _, config := range profile.PluginConfigs {
			known := registry.PluginRegistry[config.Name]
			known.PluginArgDefaulter(config.Args)
			if err := known.PluginArgValidator(config.Args); err != nil {
				t.Fatalf("read the arguments of plugin %s: %v\n%s", config.Name, err, text)
			}
		}
	}
	return p
}
