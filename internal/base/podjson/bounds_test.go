package podjson

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Fields that the gate iterates over are bounded. A pod of an admission request beyond the bounds
// is rejected; a pod that is put loses the excess, so that other pods of the list are accepted. A
// manifest, which is root's, is not bounded.
func TestFieldsOfDecisionsAreBounded(t *testing.T) {
	repeat := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return strings.Join(all, ",")
	}
	container := func(rest string) string { return `"containers":[{"name":"c"` + rest + `}]` }
	for _, c := range []struct {
		field string
		n     int // the limit
		spec  func(n int) string
	}{
		{"containers", 200, func(n int) string { return `"containers":[` + repeat(n, `{"name":"c#"}`) + `]` }},
		{"kinds of resources", 50, func(n int) string {
			return container(`,"resources":{"requests":{` + repeat(n, `"a/r#":"1"`) + `}}`)
		}},
		{"host ports", 1000, func(n int) string {
			return container(`,"ports":[` + repeat(n, `{"containerPort":1,"hostPort":1}`) + `]`)
		}},
		{"host ports", 1000, func(n int) string {
			return `"hostNetwork":true,` + container(`,"ports":[`+repeat(n, `{"containerPort":1}`)+`]`)
		}},
		{"sysctls", 100, func(n int) string {
			return container("") + `,"securityContext":{"sysctls":[` + repeat(n, `{"name":"a","value":"1"}`) + `]}`
		}},
		{"tolerations", 500, func(n int) string { return container("") + `,"tolerations":[` + repeat(n, `{"key":"a"}`) + `]` }},
		{"node selector", 500, func(n int) string { return container("") + `,"nodeSelector":{` + repeat(n, `"k#":"v"`) + `}` }},
		{"affinity", 997, func(n int) string { // plus the term, the key, and the operator
			return container("") + `,"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
				{"matchExpressions":[{"key":"k","operator":"In","values":[` + repeat(n, `"#"`) + `]}]}]}}}`
		}},
	} {
		for n, tooMany := range map[int]bool{c.n: false, c.n + 1: true} {
			text := `{"apiVersion":"v1","kind":"Pod",` + meta + `,"spec":{` + c.spec(n) + `}}`
			put, putErr := Pod([]byte(text))
			whole, _, askErr := DecodeForAdmission([]byte(text))
			if putErr != nil || checkLimits(put) != nil || errors.Is(askErr, ErrTooLarge) != tooMany || !tooMany && askErr != nil {
				t.Errorf("%d %s: error of Pod %v, of Asking %v", n, c.field, putErr, askErr)
			} else if !tooMany && !reflect.DeepEqual(put, Trim(whole)) {
				t.Errorf("%d %s: Pod lost a field within the limits", n, c.field)
			} else if len(put.Spec.Containers) == 0 {
				t.Errorf("%d %s: Pod lost all containers", n, c.field)
			}
			if _, _, err := Manifest([]byte(text)); err != nil {
				t.Errorf("Manifest() with %d %s = %v, want it accepted", n, c.field, err)
			}
		}
	}
}

// A pod beyond the limits keeps the most important fields, and nothing that would cause a
// rejection.
func TestPodBeyondLimits(t *testing.T) {
	repeat := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return b.String()
	}
	p, err := Pod([]byte(`{"metadata":{"uid":"a","namespace":"b","name":"c","annotations":{` + repeat(2000, `"k#":"",`) + repeat(1001, `"jettison/#":"",`) +
		repeat(1001, `"container.apparmor.security.beta.kubernetes.io/c#":"",`) + `"jettison/never-evict":"true"}},"spec":{"priority":7,"hostNetwork":true,
		"containers":[{"name":"c","ports":[` + repeat(1001, `{"containerPort":1},`) + `{}],"resources":{"requests":{` + repeat(50, `"a/r#":"1",`) +
		`"cpu":"1","memory":"1Gi"}}}],"initContainers":[` + repeat(200, `{"name":"i#"},`) + `{}],"tolerations":[` + repeat(500, `{"key":"a"},`) + `{}],
		"nodeSelector":{"a":"` + strings.Repeat("v", 64<<10) + `"},"securityContext":{"sysctls":[` + repeat(100, `{"name":"a","value":"1"},`) + `{}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s := &p.Spec
	if len(s.Containers) != 1 || len(s.InitContainers) != 199 || len(s.Containers[0].Ports)+len(s.SecurityContext.Sysctls)+len(s.NodeSelector) > 0 {
		t.Errorf("spec of a reduced pod = %+v, want 1 container, 199 init containers, no ports, sysctls and node selector", s)
	}
	c := s.Containers[0].Resources.Requests
	if len(c) != 2 || c.Memory().String() != "1Gi" || len(s.Tolerations) != 1 || s.Tolerations[0].Operator != "Exists" {
		t.Errorf("requests = %v, tolerations = %v; want cpu and memory, and one toleration of everything", c, s.Tolerations)
	}
	if p.Annotations["jettison/never-evict"] != "true" || len(p.Annotations) != 1002 || *s.Priority != 7 {
		t.Errorf("reduced pod has %d annotations and priority %d, want 1002 and 7", len(p.Annotations), *s.Priority)
	}
}
