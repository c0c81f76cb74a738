package podjson

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Of all that the gate walks through a client's pod has as much as is bearable: one that asks is refused, and one that is put loses what is
// too much, for the others' sake that are put with it. A manifest is root's.
func TestWhatTheGateWalksThroughIsBounded(t *testing.T) {
	repeat := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return strings.Join(all, ",")
	}
	container := func(rest string) string { return `"containers":[{"name":"c"` + rest + `}]` }
	for _, c := range []struct {
		what string
		n    int // as many as may be
		spec func(n int) string
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
		{"affinity", 997, func(n int) string { // and the term, the key, and the operator
			return container("") + `,"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
				{"matchExpressions":[{"key":"k","operator":"In","values":[` + repeat(n, `"#"`) + `]}]}]}}}`
		}},
	} {
		for n, wrong := range map[int]bool{c.n: false, c.n + 1: true} {
			text := `{"apiVersion":"v1","kind":"Pod",` + meta + `,"spec":{` + c.spec(n) + `}}`
			put, putErr := Pod([]byte(text))
			whole, _, askErr := Asking([]byte(text))
			if putErr != nil || bearable(put) != nil || errors.Is(askErr, ErrTooLarge) != wrong || !wrong && askErr != nil {
				t.Errorf("%d %s: %v, %v", n, c.what, putErr, askErr)
			} else if !wrong && !reflect.DeepEqual(put, Trim(whole)) {
				t.Errorf("%d %s: something is lost", n, c.what)
			} else if len(put.Spec.Containers) == 0 {
				t.Errorf("%d %s: everything is lost", n, c.what)
			}
			if _, _, err := Manifest([]byte(text)); err != nil {
				t.Error(c.what, err)
			}
		}
	}
}

// What a pod that is put keeps where it has too much: what counts most, and what refuses nothing.
func TestWhatIsLeftOfTooMuch(t *testing.T) {
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
		t.Errorf("%+v", s)
	}
	c := s.Containers[0].Resources.Requests
	if len(c) != 2 || c.Memory().String() != "1Gi" || len(s.Tolerations) != 1 || s.Tolerations[0].Operator != "Exists" {
		t.Errorf("%v, %v", c, s.Tolerations)
	}
	if p.Annotations["jettison/never-evict"] != "true" || len(p.Annotations) != 1002 || *s.Priority != 7 {
		t.Errorf("%d annotations", len(p.Annotations))
	}
}
