package spec

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verdicts on fields. Any other text is the reason why a field is refused.
const (
	supported = ""
	ignored   = "ignored" // set by API servers: it does not describe the pod to run
)

// Reasons for refused fields.
const (
	noProbes     = "jettison-pods does not run probes yet"
	noVolumes    = "jettison-pods does not mount volumes yet"
	noReferences = "jettison-pods does not resolve references in env yet"
	noIsolation  = "jettison-pods does not apply security contexts yet"
	noNetwork    = "jettison-pods does not configure the pod's network and names yet"
	noPullSecret = "jettison-pods does not use pull secrets yet"
	noAccount    = "no API server issues tokens of a ServiceAccount"
	noScheduler  = "no scheduler: the node runs all pods of its folder"
	noClaims     = "no API server allocates devices"
	noResize     = "resources cannot be changed in place: the pod is restarted"
	noWindows    = "the node runs Linux"
	noOwner      = "no controller owns or cleans up objects of a node"
	alpha        = "alpha in Kubernetes"
)

// fields has a verdict on every field of the types that occur in manifests, by their JSON names. A
// test fails if a type gets a new field.
var fields = map[reflect.Type]map[string]string{
	reflect.TypeFor[v1.Pod](): verdicts("apiVersion kind metadata spec", rest{"status": ignored}),
	reflect.TypeFor[v1.ConfigMap](): verdicts("apiVersion kind metadata data binaryData immutable",
		nil),
	reflect.TypeFor[v1.Secret](): verdicts("apiVersion kind metadata data stringData type immutable",
		nil),
	reflect.TypeFor[metav1.ObjectMeta](): verdicts("name namespace uid labels annotations", rest{
		"resourceVersion generation creationTimestamp selfLink managedFields": ignored,
		"generateName":               "the object needs a fixed name",
		"ownerReferences finalizers": noOwner,
		"deletionTimestamp deletionGracePeriodSeconds": "to delete the object, remove it from the " +
			"file",
	}),
	reflect.TypeFor[v1.PodSpec](): verdicts("containers initContainers restartPolicy "+
		"terminationGracePeriodSeconds activeDeadlineSeconds resources priority priorityClassName "+
		"preemptionPolicy tolerations nodeSelector affinity os securityContext dnsPolicy "+
		// without effect on a node that has no API server
		"enableServiceLinks schedulerName automountServiceAccountToken", rest{
		"nodeName":            ignored, // the node's own name is used, as by the kubelet
		"volumes":             noVolumes,
		"ephemeralContainers": "containers cannot be added to a running pod",
		"hostNetwork hostPID hostIPC shareProcessNamespace hostUsers runtimeClassName": noIsolation,
		"hostname subdomain hostnameOverride setHostnameAsFQDN hostAliases dnsConfig":  noNetwork,
		"imagePullSecrets":                          noPullSecret,
		"serviceAccountName serviceAccount":         noAccount,
		"topologySpreadConstraints schedulingGates": noScheduler,
		"schedulingGroup evictionResponders":        alpha,
		"readinessGates":                            "no controller sets conditions of pods",
		"resourceClaims":                            noClaims,
		"overhead":                                  "it belongs to runtime classes, which jettison-pods does not use yet",
	}),
	reflect.TypeFor[v1.Container](): verdicts("name image command args workingDir ports env resources "+
		"restartPolicy restartPolicyRules lifecycle terminationMessagePath terminationMessagePolicy "+
		"imagePullPolicy securityContext stdin stdinOnce tty", rest{
		"envFrom":                    noReferences,
		"volumeMounts volumeDevices": noVolumes,
		"livenessProbe readinessProbe startupProbe": noProbes,
		"resizePolicy": noResize,
	}),
	reflect.TypeFor[v1.ContainerPort](): verdicts("name containerPort protocol", rest{
		"hostPort hostIP": noNetwork,
	}),
	reflect.TypeFor[v1.EnvVar](): verdicts("name value", rest{"valueFrom": noReferences}),
	reflect.TypeFor[v1.ResourceRequirements](): verdicts("limits requests", rest{
		"claims": noClaims,
	}),
	reflect.TypeFor[v1.ContainerRestartRule]():            verdicts("action exitCodes", nil),
	reflect.TypeFor[v1.ContainerRestartRuleOnExitCodes](): verdicts("operator values", nil),
	reflect.TypeFor[v1.Lifecycle]():                       verdicts("postStart preStop", rest{"stopSignal": alpha}),
	reflect.TypeFor[v1.LifecycleHandler](): verdicts("exec httpGet sleep", rest{
		"tcpSocket": "Kubernetes does not run it",
	}),
	reflect.TypeFor[v1.ExecAction]():       verdicts("command", nil),
	reflect.TypeFor[v1.HTTPGetAction]():    verdicts("path port host scheme httpHeaders", rest{"protocol": alpha}),
	reflect.TypeFor[v1.HTTPHeader]():       verdicts("name value", nil),
	reflect.TypeFor[v1.SleepAction]():      verdicts("seconds", nil),
	reflect.TypeFor[v1.PodOS]():            verdicts("name", nil),
	reflect.TypeFor[v1.Toleration]():       verdicts("key operator value effect tolerationSeconds", nil),
	reflect.TypeFor[v1.Affinity]():         verdicts("nodeAffinity", rest{"podAffinity podAntiAffinity": noScheduler}),
	reflect.TypeFor[v1.NodeSelector]():     verdicts("nodeSelectorTerms", nil),
	reflect.TypeFor[v1.NodeSelectorTerm](): verdicts("matchExpressions matchFields", nil),
	reflect.TypeFor[v1.NodeAffinity](): verdicts("requiredDuringSchedulingIgnoredDuringExecution "+
		"preferredDuringSchedulingIgnoredDuringExecution", nil),
	reflect.TypeFor[v1.NodeSelectorRequirement](): verdicts("key operator values", nil),
	reflect.TypeFor[v1.PreferredSchedulingTerm](): verdicts("weight preference", nil),
	// {} is accepted: API servers write it.
	reflect.TypeFor[v1.PodSecurityContext](): verdicts("", rest{
		"windowsOptions": noWindows,
		"seLinuxOptions runAsUser runAsGroup runAsNonRoot supplementalGroups supplementalGroupsPolicy " +
			"fsGroup sysctls fsGroupChangePolicy seccompProfile appArmorProfile seLinuxChangePolicy": noIsolation,
	}),
	reflect.TypeFor[v1.SecurityContext](): verdicts("", rest{
		"windowsOptions": noWindows,
		"capabilities privileged seLinuxOptions runAsUser runAsGroup runAsNonRoot " +
			"readOnlyRootFilesystem allowPrivilegeEscalation procMount seccompProfile appArmorProfile": noIsolation,
	}),
}

// rest maps names of fields, separated by spaces, to their verdict.
type rest map[string]string

// verdicts returns the verdicts on the fields of a type.
func verdicts(names string, others rest) map[string]string {
	out := map[string]string{}
	for name := range strings.FieldsSeq(names) {
		out[name] = supported
	}
	for names, verdict := range others {
		for name := range strings.FieldsSeq(names) {
			out[name] = verdict
		}
	}
	return out
}

// Supported reports whether manifests may have a field of a type, by its JSON name.
func Supported(t reflect.Type, name string) bool {
	verdict, ok := fields[t][name]
	return ok && verdict == supported
}

// layout is the place of a field in its Go type.
type layout struct {
	index   []int
	zero    reflect.Value // the absent value
	verdict string
}

// layouts has the fields of the types of the table by their JSON names.
var layouts = func() map[reflect.Type]map[string]layout {
	out := map[reflect.Type]map[string]layout{}
	for t, verdicts := range fields {
		out[t] = map[string]layout{}
		for name, f := range jsonFields(t, nil) {
			out[t][name] = layout{index: f.Index, zero: reflect.Zero(f.Type), verdict: verdicts[name]}
		}
	}
	return out
}()

// jsonFields returns the fields of a type and of the types that it embeds, by their JSON names.
func jsonFields(t reflect.Type, index []int) map[string]reflect.StructField {
	out := map[string]reflect.StructField{}
	for i := range t.NumField() {
		f := t.Field(i)
		f.Index = append(slices.Clone(index), i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			maps.Copy(out, jsonFields(f.Type, f.Index))
		} else {
			out[name] = f
		}
	}
	return out
}

// isAbsent reports whether a value of a refused field is the same as an absent one: null, or the zero value of a field
// that is no pointer, such as false or [].
func (l *layout) isAbsent(n *yaml.Node) bool {
	if isNull(n) {
		return true
	}
	switch l.zero.Kind() {
	case reflect.Bool, reflect.String:
		v := reflect.New(l.zero.Type()).Elem()
		return scalar(n, v) == nil && v.IsZero()
	case reflect.Slice:
		return n.Kind == yaml.SequenceNode && len(n.Content) == 0
	case reflect.Map:
		return n.Kind == yaml.MappingNode && len(n.Content) == 0
	}
	return false
}
