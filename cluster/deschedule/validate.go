package deschedule

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Fault is one error in a policy with its location.
type Fault struct {
	Path []string // keys and indices: "profiles", "0", "pluginConfig", "1", "args"
	What string
}

func (f *Fault) Error() string { return f.What }

type point int

const (
	deschedulePoint point = 1 << iota
	balancePoint
	filterPoint
)

// plugin describes a plugin: the extension points that accept it, its arguments, their
// validation, and the strategy.
type plugin struct {
	points point
	args   func() any
	check  func(args any) []error
	run    func(r *run, args any)
}

// plugins holds all plugins by name. An init function fills it: the strategies refer to plugins,
// and an initializer would be a cycle.
var plugins map[string]plugin

func init() {
	plugins = map[string]plugin{
		DefaultEvictor: {filterPoint, func() any { return new(DefaultEvictorArgs) }, checkEvictor, nil},
		PodLifeTime: {deschedulePoint, func() any { return new(PodLifeTimeArgs) }, checkLifeTime,
			podLifeTime},
		TooManyRestarts: {deschedulePoint, func() any { return new(TooManyRestartsArgs) }, checkRestarts,
			tooManyRestarts},
		RemoveFailedPods: {deschedulePoint, func() any { return new(RemoveFailedPodsArgs) }, checkFailed,
			failedPods},
		NodeTaints: {deschedulePoint, func() any { return new(NodeTaintsArgs) }, checkTaints,
			nodeTaints},
		NodeAffinity: {deschedulePoint, func() any { return new(NodeAffinityArgs) }, checkAffinity,
			nodeAffinity},
		InterPodAntiAffinity: {deschedulePoint, func() any { return new(AntiAffinityArgs) },
			func(args any) []error { return args.(*AntiAffinityArgs).check() }, antiAffinity},
		RemoveDuplicates: {balancePoint, func() any { return new(RemoveDuplicatesArgs) },
			func(args any) []error { return args.(*RemoveDuplicatesArgs).Namespaces.check() }, duplicates},
		LowNodeUtilization: {balancePoint, func() any { return new(LowNodeUtilizationArgs) },
			checkLow, lowNodeUtilization},
		HighNodeUtilization: {balancePoint, func() any { return new(HighNodeUtilizationArgs) },
			checkHigh, highNodeUtilization},
		TopologySpreadConstraint: {balancePoint, func() any { return new(SpreadArgs) }, checkSpread,
			topologySpread},
	}
}

// kubevirtPlugin is a plugin that only OpenShift's descheduler has.
const kubevirtPlugin = "KubevirtMigrationAware"

// UnknownPlugin describes the use of a plugin that does not exist.
func UnknownPlugin(name string) string {
	if strings.EqualFold(name, kubevirtPlugin) {
		return fmt.Sprintf("plugin %s exists only in OpenShift's descheduler: remove it from pluginConfig and plugins",
			name)
	}
	return fmt.Sprintf("unknown plugin %q", name)
}

// PluginNames returns the names of all plugins, sorted.
func PluginNames() []string { return slices.Sorted(maps.Keys(plugins)) }

// Complete sets the defaults of a policy and validates it. The error joins one *Fault for each
// problem.
func (p *Policy) Complete() error {
	var faults []error
	add := func(what error, path ...string) {
		if what != nil {
			faults = append(faults, &Fault{path, what.Error()})
		}
	}
	if p.NodeSelector != nil {
		if _, err := labels.Parse(*p.NodeSelector); err != nil {
			add(fmt.Errorf("nodeSelector: %w", err), "nodeSelector")
		}
	}
	if p.GracePeriodSeconds != nil && *p.GracePeriodSeconds < 0 {
		add(fmt.Errorf("gracePeriodSeconds %d: want 0 or more", *p.GracePeriodSeconds),
			"gracePeriodSeconds")
	}
	if p.OwnerPause != nil && p.OwnerPause.Duration < 0 {
		add(fmt.Errorf("ownerPause %v: want 0 or more", p.OwnerPause.Duration), "ownerPause")
	}
	names := map[string]bool{}
	for i := range p.SchedulerProfiles {
		s := &p.SchedulerProfiles[i]
		for _, err := range s.check() {
			add(fmt.Errorf("schedulerProfiles: %s: %w", s.name(), err), "schedulerProfiles", fmt.Sprint(i))
		}
		if names[s.name()] {
			add(fmt.Errorf("schedulerProfiles: %s is described twice", s.name()), "schedulerProfiles",
				fmt.Sprint(i))
		}
		names[s.name()] = true
	}
	faults = append(faults, p.checkProviders()...)
	for i := range p.Profiles {
		faults = append(faults, p.Profiles[i].complete(fmt.Sprint(i))...)
	}
	return errors.Join(faults...)
}

func (p *Policy) checkProviders() (faults []error) {
	seen := map[MetricsSource]*MetricsProvider{}
	for i := range p.MetricsProviders {
		m := &p.MetricsProviders[i]
		add := func(format string, args ...any) {
			faults = append(faults, &Fault{[]string{"metricsProviders", fmt.Sprint(i)},
				fmt.Sprintf(format, args...)})
		}
		if seen[m.Source] != nil {
			add("metrics provider %q is configured twice", m.Source)
		}
		seen[m.Source] = m
		switch {
		case m.Source != KubernetesMetrics && m.Source != PrometheusMetrics:
			add("source %q: want %s or %s", m.Source, KubernetesMetrics, PrometheusMetrics)
		case m.Source == KubernetesMetrics && p.MetricsCollector != nil && p.MetricsCollector.Enabled:
			add("metricsCollector and provider %s configure the same source: remove metricsCollector",
				KubernetesMetrics)
		case m.Source == PrometheusMetrics && (m.Prometheus == nil || m.Prometheus.URL == ""):
			add("prometheus: url is required")
		case m.Source == PrometheusMetrics:
			if _, err := url.Parse(m.Prometheus.URL); err != nil {
				add("prometheus: url: %v", err)
			}
			t := m.Prometheus.AuthToken
			if t != nil && (t.SecretReference == nil || t.SecretReference.Name == "" ||
				t.SecretReference.Namespace == "") {
				add("prometheus: authToken: secretReference: namespace and name are required")
			}
		}
	}
	return faults
}

// complete implements Policy.Complete for one profile.
func (p *Profile) complete(index string) (faults []error) {
	add := func(path []string, format string, args ...any) {
		text := fmt.Sprintf("profile %q: ", p.Name) + fmt.Sprintf(format, args...)
		faults = append(faults, &Fault{append([]string{"profiles", index}, path...), text})
	}
	for i := range p.PluginConfig {
		c := &p.PluginConfig[i]
		known, ok := plugins[c.Name]
		if !ok {
			add([]string{"pluginConfig", fmt.Sprint(i), "name"}, "%s", UnknownPlugin(c.Name))
			continue
		}
		if slices.ContainsFunc(p.PluginConfig[:i],
			func(other PluginConfig) bool { return other.Name == c.Name }) {
			add([]string{"pluginConfig", fmt.Sprint(i), "name"},
				"%s is configured twice: only the first entry would take effect", c.Name)
		}
		if c.Args == nil {
			c.Args = known.args()
		}
		setDefaults(c.Args)
		for _, err := range known.check(c.Args) {
			add([]string{"pluginConfig", fmt.Sprint(i), "args"}, "%s: %v", c.Name, err)
		}
	}
	if p.args(DefaultEvictor) == nil {
		p.PluginConfig = append(p.PluginConfig,
			PluginConfig{DefaultEvictor, setDefaults(new(DefaultEvictorArgs))})
	}
	for _, at := range []struct {
		name string
		set  *PluginSet
		want point
	}{
		{"deschedule", &p.Plugins.Deschedule, deschedulePoint}, {"balance", &p.Plugins.Balance,
			balancePoint},
		{"filter", &p.Plugins.Filter, filterPoint}, {"preevictionfilter", &p.Plugins.PreEvictionFilter,
			filterPoint},
	} {
		for i, name := range at.set.Enabled {
			path := []string{"plugins", at.name, "enabled", fmt.Sprint(i)}
			known, ok := plugins[name]
			switch {
			case !ok:
				add(path, "%s", UnknownPlugin(name))
			case known.points&at.want == 0:
				add(path, "%s cannot be enabled at %s: wrong extension point", name, at.name)
			case p.args(name) == nil:
				add(path, "%s has no entry in pluginConfig: add one with this name", name)
			}
		}
	}
	for _, set := range []*PluginSet{&p.Plugins.Filter, &p.Plugins.PreEvictionFilter} {
		if !slices.Contains(set.Enabled, DefaultEvictor) {
			set.Enabled = append([]string{DefaultEvictor}, set.Enabled...)
		}
	}
	return faults
}

// setDefaults sets the defaults of 0.36.0 and returns args.
func setDefaults(args any) any {
	switch a := args.(type) {
	case *RemoveFailedPodsArgs:
		if a.MinPodLifetimeSeconds == nil {
			a.MinPodLifetimeSeconds = new(uint(3600))
		}
	case *SpreadArgs:
		if a.TopologyBalanceNodeFit == nil {
			a.TopologyBalanceNodeFit = new(true)
		}
		if len(a.Constraints) == 0 {
			a.Constraints = []v1.UnsatisfiableConstraintAction{v1.DoNotSchedule}
		}
	case *DefaultEvictorArgs:
		if t := a.PriorityThreshold; t == nil || t.Value == nil && t.Name == "" {
			a.PriorityThreshold = &PriorityThreshold{Value: new(criticalPriority)}
		}
	}
	return args
}

func (n *Namespaces) check() []error {
	if n != nil && len(n.Include) > 0 && len(n.Exclude) > 0 {
		return []error{errors.New("namespaces: only one of include and exclude can be set")}
	}
	return nil
}

func (s *Selected) check() []error {
	return append(s.Namespaces.check(), checkSelector("labelSelector", s.LabelSelector)...)
}

func checkSelector(name string, s *metav1.LabelSelector) []error {
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		return []error{fmt.Errorf("%s: %w", name, err)}
	}
	return nil
}

// checkEnum returns an error for each value that is not in known.
func checkEnum(name string, values, known []string) (faults []error) {
	for _, word := range values {
		if !slices.Contains(known, word) {
			faults = append(faults, fmt.Errorf("%s %q: want one of %s", name, word,
				strings.Join(known, ", ")))
		}
	}
	return faults
}

// lifeTimeStates are the allowed values of states of PodLifeTime.
var lifeTimeStates = []string{
	"Running", "Pending", "Succeeded", "Failed", "Unknown", "NodeAffinity", "NodeLost", "Shutdown",
	"UnexpectedAdmissionError",
	"PodInitializing", "ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff",
	"CreateContainerConfigError", "ErrImagePull",
	"CreateContainerError", "InvalidImageName", "OOMKilled", "Error", "Completed", "DeadlineExceeded",
	"Evicted", "ContainerCannotRun",
	"StartError",
}

func checkLifeTime(args any) []error {
	a := args.(*PodLifeTimeArgs)
	faults := append(a.check(), checkEnum("states", a.States, lifeTimeStates)...)
	if a.OwnerKinds != nil && len(a.OwnerKinds.Include) > 0 && len(a.OwnerKinds.Exclude) > 0 {
		faults = append(faults, errors.New("ownerKinds: only one of include and exclude can be set"))
	}
	for i, c := range a.Conditions {
		if c == (PodConditionFilter{}) {
			faults = append(faults, fmt.Errorf(
				"conditions[%d]: type, status, reason or minTimeSinceLastTransitionSeconds is required", i))
		}
	}
	if a.MaxPodLifeTimeSeconds == nil && len(a.States) == 0 && len(a.Conditions) == 0 &&
		len(a.ExitCodes) == 0 {
		faults = append(faults, errors.New(
			"maxPodLifeTimeSeconds, states, conditions or exitCodes is required: otherwise every pod would be evicted"))
	}
	return faults
}

func checkRestarts(args any) []error {
	a := args.(*TooManyRestartsArgs)
	faults := append(a.check(),
		checkEnum("states", a.States, []string{string(v1.PodRunning), "CrashLoopBackOff"})...)
	if a.PodRestartThreshold < 1 {
		faults = append(faults, fmt.Errorf("podRestartThreshold %d: want 1 or more",
			a.PodRestartThreshold))
	}
	return faults
}

func checkFailed(args any) []error { return args.(*RemoveFailedPodsArgs).check() }

func checkTaints(args any) []error {
	a := args.(*NodeTaintsArgs)
	faults := a.check()
	if len(a.ExcludedTaints) > 0 && len(a.IncludedTaints) > 0 {
		faults = append(faults, errors.New("only one of includedTaints and excludedTaints can be set"))
	}
	return faults
}

func checkAffinity(args any) []error {
	a := args.(*NodeAffinityArgs)
	faults := append(a.check(), checkEnum("nodeAffinityType", a.NodeAffinityType,
		[]string{RequiredAffinity, PreferredAffinity})...)
	if len(a.NodeAffinityType) == 0 {
		faults = append(faults, errors.New("nodeAffinityType is required"))
	}
	return faults
}

func checkSpread(args any) []error {
	a := args.(*SpreadArgs)
	faults := a.check()
	for _, c := range a.Constraints {
		faults = append(faults, checkEnum("constraints", []string{string(c)},
			[]string{string(v1.DoNotSchedule), string(v1.ScheduleAnyway)})...)
	}
	return faults
}

func (t Thresholds) check(name string) (faults []error) {
	if len(t) == 0 {
		return []error{fmt.Errorf("%s: at least one resource is required", name)}
	}
	for _, resource := range slices.Sorted(maps.Keys(t)) {
		if strings.HasPrefix(string(resource), "jettison/") && !isAgentResource(resource) {
			faults = append(faults, fmt.Errorf("%s: %s: unknown agent resource: want one of %s", name, resource,
				strings.Join(agentResourceNames(), ", ")))
		}
		if percent := t[resource]; !(percent >= 0 && percent <= 100) {
			faults = append(faults, fmt.Errorf("%s: %s %v: want a percentage from 0 to 100", name, resource,
				percent))
		}
	}
	return faults
}

func agentResourceNames() (out []string) {
	for _, name := range agentResources {
		out = append(out, string(name))
	}
	return out
}

func checkExcluded(n *Namespaces) []error {
	if n != nil && len(n.Include) > 0 {
		return []error{errors.New("evictableNamespaces: only exclude can be set")}
	}
	return nil
}

func checkHigh(args any) []error {
	a := args.(*HighNodeUtilizationArgs)
	faults := append(checkExcluded(a.EvictableNamespaces), a.Thresholds.check("thresholds")...)
	faults = append(faults, a.MetricsUtilization.check(a.Thresholds)...)
	return append(faults, checkEnum("evictionModes", a.EvictionModes,
		[]string{OnlyThresholdingResources})...)
}

func checkLow(args any) []error {
	a := args.(*LowNodeUtilizationArgs)
	faults := append(checkExcluded(a.EvictableNamespaces), a.Thresholds.check("thresholds")...)
	faults = append(faults, a.TargetThresholds.check("targetThresholds")...)
	same := len(a.Thresholds) == len(a.TargetThresholds)
	for _, resource := range slices.Sorted(maps.Keys(a.Thresholds)) {
		target, ok := a.TargetThresholds[resource]
		same = same && ok
		if ok && !a.UseDeviationThresholds && a.Thresholds[resource] > target {
			faults = append(faults, fmt.Errorf("thresholds: %s is greater than in targetThresholds",
				resource))
		}
	}
	if !same {
		faults = append(faults, errors.New(
			"thresholds and targetThresholds must name the same resources"))
	}
	return append(faults, a.MetricsUtilization.check(a.Thresholds)...)
}

func (m *MetricsUtilization) check(thresholds Thresholds) (faults []error) {
	if m == nil {
		return nil
	}
	add := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("metricsUtilization: "+format, args...))
	}
	switch {
	case m.Source == KubernetesMetrics && m.MetricsServer:
		add("source %s and metricsServer select the same source: remove metricsServer", KubernetesMetrics)
	case m.Source == KubernetesMetrics && m.Prometheus != nil:
		add("prometheus is not allowed with source %s", KubernetesMetrics)
	case m.Source == PrometheusMetrics && (m.Prometheus == nil || m.Prometheus.Query == ""):
		add("prometheus: query is required")
	case m.Source == PrometheusMetrics:
		if _, ok := thresholds[MetricResource]; !ok || len(thresholds) != 1 {
			add("source %s requires %s as the only resource of thresholds", PrometheusMetrics, MetricResource)
		}
	case m.Source == "" && !m.MetricsServer:
		add("source is required")
	case m.Source != "" && m.Source != KubernetesMetrics:
		add("source %q: want %s or %s", m.Source, KubernetesMetrics, PrometheusMetrics)
	}
	return faults
}

func checkEvictor(args any) []error {
	a := args.(*DefaultEvictorArgs)
	faults := append(checkSelector("labelSelector", a.LabelSelector),
		checkSelector("namespaceLabelSelector", a.NamespaceLabelSelector)...)
	if _, err := labels.Parse(a.NodeSelector); err != nil {
		faults = append(faults, fmt.Errorf("nodeSelector: %w", err))
	}
	if t := a.PriorityThreshold; t != nil && t.Value != nil {
		if t.Name != "" {
			faults = append(faults, errors.New("priorityThreshold: only one of value and name can be set"))
		}
		if *t.Value > criticalPriority {
			faults = append(faults, fmt.Errorf("priority threshold can't be greater than %d",
				criticalPriority))
		}
	}
	if a.NoEvictionPolicy != "" {
		faults = append(faults, checkEnum("noEvictionPolicy", []string{a.NoEvictionPolicy},
			[]string{PreferredNoEviction, MandatoryNoEviction})...)
	}
	extra, off := a.PodProtections.ExtraEnabled, a.PodProtections.DefaultDisabled
	if len(extra)+len(off) > 0 && (a.EvictLocalStoragePods || a.EvictDaemonSetPods ||
		a.EvictSystemCriticalPods || a.IgnorePvcPods ||
		a.EvictFailedBarePods || a.IgnorePodsWithoutPDB) {
		faults = append(faults, errors.New(
			"podProtections cannot be combined with the deprecated evict... and ignore... fields"))
	}
	faults = append(faults, checkEnum("podProtections: extraEnabled", extra, extraProtections)...)
	faults = append(faults, checkEnum("podProtections: defaultDisabled", off, defaultProtections)...)
	for _, list := range [][]string{extra, off} {
		if sorted := slices.Sorted(slices.Values(list)); len(slices.Compact(sorted)) < len(list) {
			faults = append(faults, errors.New("podProtections: a protection is listed twice"))
		}
	}
	for i, class := range a.storageClasses() {
		if class == "" {
			faults = append(faults, fmt.Errorf(
				"podProtections: config: PodsWithPVC: protectedStorageClasses[%d]: name is required", i))
		}
	}
	return faults
}
