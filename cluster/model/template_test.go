package model

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Pods of one owner have their own terms if these differ, or depend on their labels.
func TestPodsHaveOwnTerms(t *testing.T) {
	const (
		anti   = "affinity: {podAntiAffinity: {%sDuringSchedulingIgnoredDuringExecution: [%s]}}"
		near   = "affinity: {podAffinity: {%sDuringSchedulingIgnoredDuringExecution: [%s]}}"
		term   = "{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: a}}, %s: [version]}"
		spread = "topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: a}}, matchLabelKeys: [version]}]"
	)
	weighted := func(form, key string) string {
		return fmt.Sprintf(form, "preferred", "{weight: 1, podAffinityTerm: "+fmt.Sprintf(term, key)+"}")
	}
	required := func(form, key string) string { return fmt.Sprintf(form, "required", fmt.Sprintf(term, key)) }
	for name, c := range map[string]struct {
		first, second string
		same          bool
	}{
		"anti-affinity, match":      {required(anti, "matchLabelKeys"), "", false},
		"anti-affinity, mismatch":   {required(anti, "mismatchLabelKeys"), "", false},
		"preferred anti-affinity":   {weighted(anti, "matchLabelKeys"), "", false},
		"affinity":                  {required(near, "matchLabelKeys"), "", false},
		"preferred affinity":        {weighted(near, "mismatchLabelKeys"), "", false},
		"spread":                    {spread, "", false},
		"selector":                  {"nodeSelector: {a: b}", "", true},
		"another selector":          {"nodeSelector: {a: b}", "nodeSelector: {a: c}", false},
		"other tolerations":         {"nodeSelector: {a: b}", "nodeSelector: {a: b}, tolerations: [{operator: Exists}]", false},
		"affinity without the keys": {fmt.Sprintf(near, "required", "{topologyKey: rack, labelSelector: {}}"), "", true},
	} {
		if c.second == "" {
			c.second = c.first
		}
		one, two := podOn(t, "one", "", "app: a, version: v1", c.first), podOn(t, "two", "", "app: a, version: v2", c.second)
		for _, p := range []*v1.Pod{one, two} {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", UID: "r"}}
		}
		cl := New(&Objects{}, nil)
		if got := cl.NewPod(one).template == cl.NewPod(two).template; got != c.same {
			t.Errorf("%s: pods share terms: %t, want %t", name, got, c.same)
		}
		if two.Namespace = "y"; cl.NewPod(one).template == cl.NewPod(two).template {
			t.Errorf("%s: pods of two namespaces share terms", name)
		}
	}
}

// The owner with the first kind and name gives a pod its number, in its namespace.
func TestOwnerNumbers(t *testing.T) {
	c := New(&Objects{}, nil)
	number := func(namespace string, owners ...string) int32 {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace}}
		for _, o := range owners {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: o[:1], Name: o[1:]})
		}
		return c.NewPod(p).OwnerNumber
	}
	a := number("x", "Aa")
	if number("x") != 0 || a == 0 || number("x", "Bb", "Aa") != a || number("x", "Ab", "Aa") != a || number("y", "Aa") == a || number("x", "Bb") == a {
		t.Error("owner numbers differ for the same first owner, or are the same for different ones")
	}
	if c.Owners() != 3 {
		t.Errorf("%d owners, want 3", c.Owners())
	}
}

// A selector with keys requires the values that the pod has, or others. Keys that the pod lacks have
// no effect. An absent or invalid selector matches nothing.
func TestSelectorsWithKeys(t *testing.T) {
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	own := map[string]string{"app": "a", "version": "1"}
	for name, c := range map[string]struct {
		selector *metav1.LabelSelector
		keys     []string
		same     bool
		match    string // which of the versions 1, 2 and none match
	}{
		"no keys": {app, nil, true, "1 2 none"}, "same": {app, []string{"version"}, true, "1"}, "different": {app, []string{"version"}, false, "2 none"},
		"pod lacks the key": {app, []string{"other"}, true, "1 2 none"}, "matches nothing": {nil, []string{"version"}, true, ""},
		"invalid": {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}, nil, true, ""},
	} {
		s, match := withKeys(selectorOf(c.selector), own, c.keys, c.same), []string{}
		for _, version := range []string{"1", "2", "none"} {
			set := labels.Set{"app": "a"}
			if version != "none" {
				set["version"] = version
			}
			if s.Matches(set) {
				match = append(match, version)
			}
		}
		if got := strings.Join(match, " "); got != c.match {
			t.Errorf("%s: versions that match = %q, want %q", name, got, c.match)
		}
	}
}
