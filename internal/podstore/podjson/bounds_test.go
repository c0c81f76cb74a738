package podjson

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Of all that the gate walks through a client's pod has as much as is bearable, whether it is put or only asks. A manifest is root's.
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
			_, putErr := Pod([]byte(text))
			_, _, askErr := Asking([]byte(text))
			if errors.Is(putErr, ErrTooLarge) != wrong || errors.Is(askErr, ErrTooLarge) != wrong || !wrong && (putErr != nil || askErr != nil) {
				t.Errorf("%d %s: %v, %v", n, c.what, putErr, askErr)
			}
			if _, _, err := Manifest([]byte(text)); err != nil {
				t.Error(c.what, err)
			}
		}
	}
	for _, text := range []string{
		`{"metadata":{"uid":"a","namespace":"b","name":"c","annotations":{` + repeat(1001, `"k#":"v"`) + `}},"spec":{"containers":[{"name":"c"}]}}`,
		`{` + meta + `,"spec":{"containers":[{"name":"c"}],"nodeSelector":{"a":"` + strings.Repeat("v", 64<<10) + `"}}}`,
	} {
		if _, err := Pod([]byte(text)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%.100s: %v", text, err)
		}
	}
}
