package spec

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
)

// The system's priority classes (pkg/apis/scheduling/types.go). No API server resolves others.
var classes = map[string]int32{"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}

// Default sets the defaults of a pod, as an API server does (SetObjectDefaults_Pod,
// DefaultPodLevelResources), and the priority of a system class. Defaulting a pod again changes
// nothing.
func Default(p *v1.Pod) {
	s := &p.Spec
	if t := s.TerminationGracePeriodSeconds; t == nil {
		setDefault(&s.TerminationGracePeriodSeconds, int64(v1.DefaultTerminationGracePeriodSeconds))
	} else if *t < 0 {
		*t = 1
	}
	setDefault(&s.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	setDefault(&s.SecurityContext, v1.PodSecurityContext{})
	if priority, ok := classes[s.PriorityClassName]; ok {
		setDefault(&s.Priority, priority)
	}
	for _, d := range podTexts(p) {
		d.set()
	}
	for c := range containersOf(s) {
		defaultRequests(&c.Resources)
		roundResources(&c.Resources)
		for _, d := range containerTexts(c) {
			d.set()
		}
	}
	if s.Resources != nil {
		roundResources(s.Resources)
		defaultPodResources(p)
	}
}

// setDefault sets a field that is absent.
func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// textDefault is the default of a text field.
type textDefault struct {
	field reflect.Value
	value string
}

func textOf[T ~string](field *T, value T) textDefault {
	return textDefault{reflect.ValueOf(field).Elem(), string(value)}
}

func (d textDefault) set() {
	if d.field.String() == "" {
		d.field.SetString(d.value)
	}
}

// unset removes the default.
func (d textDefault) unset() {
	if d.field.String() == d.value {
		d.field.SetString("")
	}
}

// podTexts returns the defaults of a pod's text fields.
func podTexts(p *v1.Pod) []textDefault {
	return []textDefault{
		textOf(&p.Spec.RestartPolicy, v1.RestartPolicyAlways),
		textOf(&p.Spec.DNSPolicy, v1.DNSClusterFirst),
		textOf(&p.Spec.SchedulerName, v1.DefaultSchedulerName),
	}
}

// containerTexts returns the defaults of a container's text fields.
func containerTexts(c *v1.Container) []textDefault {
	out := []textDefault{
		textOf(&c.ImagePullPolicy, pullPolicy(c.Image)),
		textOf(&c.TerminationMessagePath, v1.TerminationMessagePathDefault),
		textOf(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile),
	}
	for i := range c.Ports {
		out = append(out, textOf(&c.Ports[i].Protocol, v1.ProtocolTCP))
	}
	if c.Lifecycle == nil {
		return out
	}
	for _, h := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if h != nil && h.HTTPGet != nil {
			out = append(out, textOf(&h.HTTPGet.Path, "/"), textOf(&h.HTTPGet.Scheme, v1.URISchemeHTTP))
		}
	}
	return out
}

// containersOf iterates over the init containers and then the regular ones.
func containersOf(s *v1.PodSpec) func(yield func(*v1.Container) bool) {
	return func(yield func(*v1.Container) bool) {
		for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// removeDefaults removes from a defaulted pod all values that Default would set again.
func removeDefaults(p *v1.Pod) {
	s := &p.Spec
	unsetDefault(&s.TerminationGracePeriodSeconds, int64(v1.DefaultTerminationGracePeriodSeconds))
	unsetDefault(&s.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	if priority, ok := classes[s.PriorityClassName]; ok {
		unsetDefault(&s.Priority, priority)
	}
	for _, d := range podTexts(p) {
		d.unset()
	}
	if s.Resources != nil { // needs the defaults of the containers
		removePodResources(p)
	}
	for c := range containersOf(s) {
		removeRequests(&c.Resources)
		for _, d := range containerTexts(c) {
			d.unset()
		}
	}
}

func unsetDefault[T comparable](field **T, value T) {
	if *field != nil && **field == value {
		*field = nil
	}
}
