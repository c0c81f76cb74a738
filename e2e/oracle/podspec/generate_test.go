package podspec

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"jettison/pods/spec"
)

// pool has values of a field.
type pool struct{ valid, invalid []any }

func values(valid ...any) pool { return pool{valid: valid} }

func (p pool) or(invalid ...any) pool {
	p.invalid = invalid
	return p
}

var (
	long   = strings.Repeat("a", 64)
	number = values(int64(0), int64(1), int64(2), int64(30), int64(255))
	amount = values("0", "1", "100m", "0.5", "1Gi", "2Gi", "1e3", "0.0001", "1500m", "4Mi", "2Mi").or("-1", "1Gx", "")
	name   = values("a", "b", "c-1", "d").or("A", "", "a_b", long, "-a")
	host   = values("a", "a.b", "1").or("A", "a_b", ".", strings.Repeat("a", 254))
	key    = values("a", "b.c/d", "a_b").or("", "a/b/c", "-a", "é", long+"/a", long)
	text   = values("", "a", "b c", "é", "$(A)", "- x: [", "\"", "\n", "yes", "1", "null", "<<").or("\x00")
	label  = values("a", "", "A.b_c").or("-", "a b", long)
)

// pools has values for the fields of the types, and for the keys of maps: "field{}". A supported
// field without values fails the test.
var pools = map[string]pool{
	"Pod.apiVersion": values("v1"), "Pod.kind": values("Pod"),
	"ConfigMap.apiVersion": values("v1"), "ConfigMap.kind": values("ConfigMap"),
	"Secret.apiVersion": values("v1"), "Secret.kind": values("Secret"),
	"ConfigMap.data": text, "ConfigMap.data{}": values("a", "B.c-d_e", "..a").or("", "..", ".", "a/b", "é"),
	"ConfigMap.binaryData": text, "ConfigMap.binaryData{}": values("x", "y").or("a/b", "a", "B.c-d_e"), "ConfigMap.immutable": values(true, false),
	"Secret.data": text, "Secret.data{}": values("a", "tls.crt", "tls.key", "username", "ssh-privatekey", ".dockerconfigjson").or("a/b", ".."),
	"Secret.stringData": values("a", "{}"), "Secret.stringData{}": values("a", "tls.crt", ".dockerconfigjson", ".dockercfg", "password").or("a b"),
	"Secret.immutable": values(true, false), "Secret.type": values("", "Opaque", "mine", "kubernetes.io/tls", "kubernetes.io/basic-auth",
		"kubernetes.io/ssh-auth", "kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson", "kubernetes.io/service-account-token"),

	"ObjectMeta.name": host, "ObjectMeta.namespace": values("", "a", "kube-system").or("A", "a.b", long), "ObjectMeta.uid": values("", "a-b", "0").
				or("a_b", "a/b", "..", "xpody", "-a", long+long),
	"ObjectMeta.labels": label, "ObjectMeta.labels{}": key, "ObjectMeta.annotations": text,
	"ObjectMeta.annotations{}": values("a", "B.c/d").or("", "a/b/c", "kubernetes.io/config.mirror", "container.apparmor.security.beta.kubernetes.io/a"),

	"PodSpec.restartPolicy":                 values("", "Always", "OnFailure", "Never").or("always", " "),
	"PodSpec.terminationGracePeriodSeconds": values(int64(0), int64(1), int64(30), int64(-1), int64(3600)),
	"PodSpec.activeDeadlineSeconds":         values(int64(1), int64(600)).or(int64(0), int64(-1), int64(1)<<31),
	"PodSpec.priority":                      values(int64(0), int64(-5), int64(2000001000)),
	"PodSpec.priorityClassName":             values("", "system-node-critical").or("high", "A", "a_b"),
	"PodSpec.preemptionPolicy":              values("PreemptLowerPriority", "Never").or("", "x"),
	"PodSpec.nodeSelector":                  label, "PodSpec.nodeSelector{}": key,
	"PodSpec.dnsPolicy":          values("", "ClusterFirst", "Default", "ClusterFirstWithHostNet").or("None", "x"),
	"PodSpec.enableServiceLinks": values(true, false), "PodSpec.automountServiceAccountToken": values(true, false),
	"PodSpec.schedulerName": values("", "default-scheduler", "mine"), "PodOS.name": values("linux").or("", "windows", "plan9"),

	"Container.name": name, "Container.image": values("a", "a:1", "r:5000/a", "a:latest", "r.io/a/b@sha256:"+long, "A", "a b", ":").or("", " a", "a\n"),
	"Container.command": text, "Container.args": text, "Container.workingDir": text,
	"Container.restartPolicy":            values("Always", "OnFailure", "Never").or("x", ""),
	"Container.terminationMessagePath":   values("", "/a", "b"),
	"Container.terminationMessagePolicy": values("", "File", "FallbackToLogsOnError").or("x"),
	"Container.imagePullPolicy":          values("", "Always", "IfNotPresent", "Never").or("x"),
	"Container.stdin":                    values(true, false), "Container.stdinOnce": values(true, false), "Container.tty": values(true, false),
	"ContainerPort.name":          values("", "http", "a-1").or("A", "1", "a--b", "aaaaaaaaaaaaaaaa", "-a"),
	"ContainerPort.containerPort": values(int64(1), int64(80), int64(65535)).or(int64(0), int64(-1), int64(65536)),
	"ContainerPort.protocol":      values("", "TCP", "UDP", "SCTP").or("tcp", "x"),
	"EnvVar.name":                 values("A", "a.b", "1", " ", "a b").or("", "a=b", "é"), "EnvVar.value": text,
	"ResourceRequirements.limits": amount, "ResourceRequirements.limits{}": resources,
	"ResourceRequirements.requests": amount, "ResourceRequirements.requests{}": resources,
	"ContainerRestartRule.action":              values("Restart", "RestartAllContainers").or("", "x"),
	"ContainerRestartRuleOnExitCodes.operator": values("In", "NotIn").or("", "x"), "ContainerRestartRuleOnExitCodes.values": number,
	"ExecAction.command": text, "SleepAction.seconds": values(int64(0), int64(1)).or(int64(-1), int64(31), int64(5000)),
	"HTTPGetAction.path": values("", "/", "x"), "HTTPGetAction.port": values(int64(80), "http").or(int64(0), int64(65536), "A", "", "1"),
	"HTTPGetAction.host": values("", "a", "::1"), "HTTPGetAction.scheme": values("", "HTTP", "HTTPS").or("http", "x"),
	"HTTPHeader.name": values("A", "x-y").or("", "a b", "é"), "HTTPHeader.value": text,
	"Toleration.key": key, "Toleration.operator": values("", "Equal", "Exists").or("x", "Lt", "Gt"), "Toleration.value": label,
	"Toleration.effect": values("", "NoSchedule", "PreferNoSchedule", "NoExecute").or("x"), "Toleration.tolerationSeconds": number,
	"NodeSelectorRequirement.key":      values("a", "b.c/d", "metadata.name").or("", "a/b/c"),
	"NodeSelectorRequirement.operator": values("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt").or("", "x"),
	"NodeSelectorRequirement.values":   label, "PreferredSchedulingTerm.weight": values(int64(1), int64(100)).or(int64(0), int64(101)),
}

var resources = values("cpu", "memory", "ephemeral-storage", "hugepages-2Mi").
	or("", "x", "pods", "a.io/gpu", "hugepages-x", "kubernetes.io/x", "requests.a.io/x", "a/b/c", "hugepages-0", "requests.cpu", "storage")

// generator makes a random object from the supported fields.
type generator struct {
	t    *testing.T
	r    *rand.Rand
	bad  float64 // share of invalid values
	fill float64 // share of fields that are set
	// typed: without values of a wrong type, which hide all other errors of an object.
	typed bool
}

func generate(t *testing.T, r *rand.Rand) any {
	g := &generator{t: t, r: r, fill: 0.1 + 0.6*r.Float64()}
	g.typed = r.IntN(10) > 0
	if r.IntN(5) > 1 {
		g.bad = 0.2 * r.Float64()
	}
	switch r.IntN(12) {
	case 0:
		return g.object(&v1.ConfigMap{}, "ConfigMap")
	case 1, 2:
		return g.object(&v1.Secret{}, "Secret")
	}
	return g.object(&v1.Pod{}, "Pod")
}

// required are fields that a valid object needs.
var required = map[string]bool{"ObjectMeta.name": true, "Container.name": true, "Container.image": true, "PodSpec.containers": true,
	"ContainerPort.containerPort": true, "EnvVar.name": true, "ContainerRestartRule.action": true, "ContainerRestartRule.exitCodes": true,
	"ContainerRestartRuleOnExitCodes.operator": true, "ExecAction.command": true, "HTTPGetAction.port": true, "HTTPHeader.name": true,
	"PodOS.name": true, "NodeSelector.nodeSelectorTerms": true, "NodeSelectorRequirement.key": true, "NodeSelectorRequirement.operator": true,
	"PreferredSchedulingTerm.weight": true, "Pod.spec": true, "Pod.metadata": true, "ConfigMap.metadata": true, "Secret.metadata": true}

func (g *generator) object(o any, kind string) any {
	g.structure(reflect.ValueOf(o).Elem())
	v := reflect.ValueOf(o).Elem()
	v.FieldByName("APIVersion").SetString("v1")
	v.FieldByName("Kind").SetString(kind)
	if p, ok := o.(*v1.Pod); ok && g.r.Float64() >= g.bad {
		g.repair(p)
	}
	return o
}

// repair makes most pods valid where single values cannot.
func (g *generator) repair(p *v1.Pod) {
	names := 0
	for kind, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if c.Name == "a" || c.Name == "b" {
				c.Name += string(rune('0' + names))
			}
			names++
			if c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0 {
				always := v1.ContainerRestartPolicyAlways
				c.RestartPolicy = &always
			}
			if kind == 0 && (c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways) {
				c.Lifecycle = nil
			}
			if c.Lifecycle != nil {
				for _, h := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
					if h == nil {
						continue
					}
					if h.HTTPGet == nil && h.Sleep == nil && h.Exec == nil {
						h.Sleep = &v1.SleepAction{}
					}
					if h.Exec != nil && g.r.IntN(10) > 0 {
						h.HTTPGet, h.Sleep = nil, nil
					} else if h.HTTPGet != nil {
						h.Sleep = nil
					}
				}
			}
			if g.r.IntN(4) > 0 {
				lower(&c.Resources)
			}
		}
	}
	if r := p.Spec.Resources; r != nil && g.r.IntN(4) > 0 {
		lower(r)
	}
	for i := range p.Spec.Tolerations {
		t := &p.Spec.Tolerations[i]
		if t.Operator == v1.TolerationOpExists {
			t.Value = ""
		}
		if t.TolerationSeconds != nil {
			t.Effect = v1.TaintEffectNoExecute
		}
		if t.Key == "" {
			t.Operator, t.Value = v1.TolerationOpExists, ""
		}
	}
	if p.Spec.PriorityClassName != "" {
		p.Spec.Priority = nil
	}
}

// lower makes requests no larger than limits.
func lower(r *v1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if request, ok := r.Requests[name]; ok && request.Cmp(limit) > 0 {
			r.Requests[name] = limit
		}
	}
	delete(r.Requests, "hugepages-2Mi")
	if _, ok := r.Limits["hugepages-2Mi"]; ok {
		r.Limits["hugepages-2Mi"] = resource.MustParse("4Mi")
		if _, ok := r.Limits["cpu"]; !ok {
			r.Limits["cpu"] = resource.MustParse("4")
		}
	}
}

func (g *generator) structure(v reflect.Value) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		field, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && field == "" {
			continue // apiVersion and kind
		}
		at := t.Name() + "." + field
		if !spec.Supported(t, field) || !required[at] && g.r.Float64() > g.fill || required[at] && g.r.Float64() < g.bad/4 {
			continue
		}
		g.value(v.Field(i), at)
	}
}

var (
	quantityType = reflect.TypeFor[resource.Quantity]()
	portType     = reflect.TypeFor[intstr.IntOrString]()
)

func (g *generator) value(v reflect.Value, at string) {
	switch t := v.Type(); {
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		g.value(v.Elem(), at)
	case t == quantityType:
		// An invalid text is no quantity: it becomes one that JSON cannot have otherwise.
		q, err := resource.ParseQuantity(g.pick(at).(string))
		if err != nil {
			q = resource.MustParse("-1")
		}
		v.Set(reflect.ValueOf(q))
	case t == portType:
		switch x := g.pick(at).(type) {
		case int64:
			v.Set(reflect.ValueOf(intstr.FromInt32(int32(x))))
		case string:
			v.Set(reflect.ValueOf(intstr.FromString(x)))
		}
	case t.Kind() == reflect.Struct:
		g.structure(v)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		v.SetBytes([]byte(g.pick(at).(string)))
	case t.Kind() == reflect.Slice:
		n := 1 + g.r.IntN(2)
		if g.r.Float64() < g.bad/4 {
			n = []int{0, 21, 256}[g.r.IntN(3)]
		}
		if t.Elem().Kind() == reflect.Struct {
			n = min(n, 21)
		}
		for range n {
			item := reflect.New(t.Elem()).Elem()
			g.value(item, at)
			v.Set(reflect.Append(v, item))
		}
	case t.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(t))
		for range 1 + g.r.IntN(3) {
			item := reflect.New(t.Elem()).Elem()
			g.value(item, at)
			v.SetMapIndex(reflect.ValueOf(g.pick(at+"{}")).Convert(t.Key()), item)
		}
	case t.Kind() == reflect.String:
		v.SetString(g.pick(at).(string))
	case t.Kind() == reflect.Bool:
		v.SetBool(g.pick(at).(bool))
	default:
		v.SetInt(g.pick(at).(int64))
	}
}

// pick returns a value of a field.
func (g *generator) pick(at string) any {
	p, ok := pools[at]
	if !ok {
		g.t.Fatalf("the oracle has no values for the supported field %s", at)
	}
	if len(p.invalid) > 0 && g.r.Float64() < g.bad {
		value := p.invalid[g.r.IntN(len(p.invalid))]
		if !g.typed || value != "\x00" && at != "ResourceRequirements.limits" && at != "ResourceRequirements.requests" {
			return value
		}
	}
	return p.valid[g.r.IntN(len(p.valid))]
}
