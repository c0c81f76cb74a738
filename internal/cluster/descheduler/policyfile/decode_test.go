package policyfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"jettison/cluster/deschedule"
)

const head = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n"

func TestPolicyErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "p:1: the file is empty"},
		{"- a", "p:1: want a mapping"},
		{"apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\n", "p:1: apiVersion descheduler/v1alpha1 is no longer supported: convert it to descheduler/v1alpha2 with \"jettison-cluster deschedule migrate\""}, // XPO7
		{"apiVersion: v1\nkind: DeschedulerPolicy\n", `p:1: apiVersion "v1": want descheduler/v1alpha2`},
		{"apiVersion: descheduler/v1alpha2\nkind: Policy\n", `p:2: kind "Policy": want DeschedulerPolicy`},
		{head + "nodeSelecter: a\n", `p:3: unknown field "nodeSelecter": did you mean "nodeSelector"?`}, // XPO5
		{head + "maxNoOfPodsToEvictTotal: -1\n", `p:3: maxNoOfPodsToEvictTotal: "-1": want a whole number, 0 or more`},
		{head + "nodeSelector: \"a==,\"\n", "p:3: nodeSelector: "},
		{head + "profiles:\n- name: a\n  pluginConfig:\n  - name: PodLifeTime\n    args:\n      maxPodLifetimeSeconds: 5\n",
			`p:8: profiles.0.pluginConfig.0.args: unknown field "maxPodLifetimeSeconds": did you mean "maxPodLifeTimeSeconds"?`},
		{head + "profiles:\n- name: a\n  pluginConfig:\n  - name: PodLifetime\n    args: {}\n", `unknown plugin "PodLifetime": did you mean "PodLifeTime"?`},
		{head + "profiles:\n- name: a\n  plugins:\n    balance:\n      enabled: [PodLifeTime]\n", "p:7: profile \"a\": PodLifeTime cannot be enabled at balance"},
		{head + "profiles:\n- name: a\n  plugins:\n    deschedule:\n      enabled:\n      - PodLifeTime\n",
			"p:8: profile \"a\": PodLifeTime has no entry in pluginConfig"},
		{head + "profiles:\n- name: a\n  pluginConfig:\n  - name: RemovePodsViolatingNodeAffinity\n    args:\n      nodeAffinityType: [required]\n",
			`RemovePodsViolatingNodeAffinity: nodeAffinityType "required": want one of requiredDuringSchedulingIgnoredDuringExecution`},
		{head + "profiles:\n- name: a\n  pluginConfig:\n  - name: DefaultEvictor\n    args: {minPodAge: 10}\n", `minPodAge: "10": want a duration`},
		{head + "profiles: 3\n", "p:3: profiles: want a list"},
		{head + "profiles: [3]\n", "p:3: profiles.0: want a mapping"},
		{head + "kind: DeschedulerPolicy\n", `p:3: duplicate field "kind"`},
		{head + "---\na: b\n", "more than one document in the file"},
		{head + "\tx", "not YAML"},
	} {
		_, err := Decode([]byte(c.text), "p")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Decode(%q) = %v, want %s", c.text, err, c.want)
		}
	}
}

// The README and tests of the descheduler spell preevictionfilter differently from its API: both
// spellings are accepted.
func TestPreEvictionFilterSpelling(t *testing.T) {
	profile := "profiles:\n- name: a\n  plugins:\n    %s:\n      enabled: [%s]\n"
	p, err := Decode(fmt.Appendf(nil, head+profile, "preEvictionFilter", "DefaultEvictor"), "p")
	if err != nil || !slices.Equal(p.Profiles[0].Plugins.PreEvictionFilter.Enabled, []string{"DefaultEvictor"}) {
		t.Errorf("Decode() = %v, profiles %+v, want DefaultEvictor at preevictionfilter", err, p)
	}
	if _, err := Decode(fmt.Appendf(nil, head+profile, "Deschedule", "PodLifeTime"), "p"); err == nil {
		t.Error("Decode() accepts the unknown field Deschedule, want an error") // 0.36.0 ignores it
	}
}

// The example of the descheduler's documentation decodes with its values and defaults.
func TestExample(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := Decode(text, "example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if *p.NodeSelector != "pool=worker" || *p.MaxNoOfPodsToEvictTotal != 50 || len(p.Profiles) != 1 || len(p.Profiles[0].PluginConfig) != 3 {
		t.Errorf("policy = %+v, want the values of example.yaml", p)
	}
	low := p.Profiles[0].PluginConfig[2].Args.(*deschedule.LowNodeUtilizationArgs)
	if low.TargetThresholds["memory"] != 50 || low.MetricsUtilization.Source != deschedule.KubernetesMetrics {
		t.Errorf("LowNodeUtilization = %+v, want the values of example.yaml", low)
	}
	evictor := p.Profiles[0].PluginConfig[0].Args.(*deschedule.DefaultEvictorArgs)
	if *evictor.PriorityThreshold.Value != 10000 || !evictor.NodeFit || evictor.MinPodAge.Minutes() != 10 {
		t.Errorf("DefaultEvictor = %+v, want the values of example.yaml", evictor)
	}
}

const oldPolicy = `apiVersion: descheduler/v1alpha1
kind: DeschedulerPolicy
evictLocalStoragePods: yes
ignorePvcPods: true
maxNoOfPodsToEvictPerNode: 40
strategies:
  RemoveDuplicates: {enabled: true, weight: 3}
  PodLifeTime:
    enabled: true
    params: {podLifeTime: {maxPodLifeTimeSeconds: 86400, podStatusPhases: [Pending]}, nodeAffinityType: [x]}
  LowNodeUtilization:
    enabled: true
    params:
      nodeFit: true
      thresholdPriority: 100
      nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}
  RemovePodsViolatingNodeTaints: {enabled: false}
  Gone: {enabled: true}
`

func TestMigrate(t *testing.T) {
	text, notes, err := Migrate([]byte(oldPolicy), "old")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Decode(text, "new")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Profiles) != 2 || *p.MaxNoOfPodsToEvictPerNode != 40 {
		t.Fatalf("migrated policy = %s, want two profiles and the node limit", text)
	}
	if got := p.Profiles[1].Plugins.Deschedule.Enabled[0] + " " + p.Profiles[1].Plugins.Balance.Enabled[0]; got != "PodLifeTime RemoveDuplicates" {
		t.Errorf("strategies of profile 1 = %q, want PodLifeTime and RemoveDuplicates: %s", got, text)
	}
	want := []string{
		"strategies.Gone: strategy no longer exists", "strategies.PodLifeTime.params.nodeAffinityType: no argument of PodLifeTime",
		"strategies.RemoveDuplicates.weight: field never had an effect",
		"strategies.RemovePodsViolatingNodeTaints: not enabled",
	}
	if strings.Join(notes, "\n") != strings.Join(want, "\n") {
		t.Errorf("notes =\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
	if _, _, err := Migrate([]byte(head), "p"); err == nil || !strings.Contains(err.Error(), "want descheduler/v1alpha1") {
		t.Errorf("Migrate() of v1alpha2 = %v, want an error about apiVersion", err)
	}
	if _, _, err := Migrate([]byte("apiVersion: descheduler/v1alpha1\nstrategys: {}\n"), "p"); err == nil ||
		!strings.Contains(err.Error(), `p:2: unknown field "strategys": did you mean "strategies"?`) {
		t.Errorf("Migrate() = %v, want an error about the field strategys", err)
	}
}

// A strategy that cannot be converted is named with the user's line; the others are converted.
func TestMigrateConvertsOtherStrategies(t *testing.T) {
	const head = "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\nstrategies:\n  RemoveDuplicates: {enabled: true}\n"
	for text, want := range map[string][]string{
		head + "  RemovePodsViolatingNodeAffinity: {enabled: true}\n": {
			"policy p:5: strategies.RemovePodsViolatingNodeAffinity: not converted: nodeAffinityType is required"},
		head + "  LowNodeUtilization:\n    enabled: true\n    params:\n      namespaces: {include: [stage]}\n" +
			"      nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}\n": {
			"policy p:8: strategies.LowNodeUtilization: not converted: evictableNamespaces: only exclude can be set"},
		head + "  PodLifeTime: {enabled: true, params: {podLifeTime: {maxPodLifeTimeSeconds: 600, states: [Terminating]}}}\n" +
			"  RemovePodsHavingTooManyRestarts: {enabled: true}\n": {
			`policy p:5: strategies.PodLifeTime: not converted: states "Terminating": want one of Running, Pending,`,
			"policy p:6: strategies.RemovePodsHavingTooManyRestarts: not converted: podRestartThreshold 0: want 1 or more"},
		head + "  PodLifeTime: {enabled: true, params: {thresholdPriority: 1, thresholdPriorityClassName: a, podLifeTime: {maxPodLifeTimeSeconds: 600}}}\n": {
			"policy p:5: strategies.PodLifeTime: not converted: DefaultEvictor: priorityThreshold: only one of value and name can be set"},
	} {
		policy, _, err := Migrate([]byte(text), "p")
		lines := strings.Split(fmt.Sprint(err), "\n")
		if len(lines) != len(want) {
			t.Errorf("Migrate(%q) = %v, want %d errors", text, err, len(want))
			continue
		}
		for i := range want {
			if !strings.HasPrefix(lines[i], want[i]) {
				t.Errorf("Migrate(%q): error %d = %q, want %q", text, i+1, lines[i], want[i])
			}
		}
		p, err := Decode(policy, "new")
		if err != nil || len(p.Profiles) != 1 || !slices.Equal(p.Profiles[0].Plugins.Balance.Enabled, []string{"RemoveDuplicates"}) ||
			len(p.Profiles[0].Plugins.Deschedule.Enabled) != 0 {
			t.Errorf("Migrate(%q) = %s, error %v, want only RemoveDuplicates", text, policy, err)
		}
	}
	selector := strings.Replace(head, "strategies:", "nodeSelector: \"a==,\"\nstrategies:", 1)
	if policy, _, err := Migrate([]byte(selector), "p"); policy != nil || err == nil || !strings.HasPrefix(err.Error(), "policy p:3: nodeSelector: ") {
		t.Errorf("Migrate(%q) = %s, error %v, want an error about line 3 and no policy", selector, policy, err)
	}
}

// The error about a file with a policy in it names the place of the policy.
func TestPolicyInAnotherFile(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  readme: none\n  policy.yaml: |\n    kind: DeschedulerPolicy\n": "policy p:6: file is a ConfigMap: " +
			"save the text of data.policy.yaml, which is the policy, as a file of its own",
		"kind: CronJob\ndeschedulerPolicy:\n  profiles: []\n": "policy p:3: file has the values of a Helm chart: " +
			"save the content of deschedulerPolicy, which is the policy, as a file of its own with apiVersion and kind",
		"apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n": `policy p:1: apiVersion "v1": want descheduler/v1alpha`,
	} {
		if _, err := Decode([]byte(text), "p"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Decode(%q) = %v, want %s", text, err, want)
		}
		if _, _, err := Migrate([]byte(text), "p"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Migrate(%q) = %v, want %s", text, err, want)
		}
	}
}

// Policies of other distributions: a null for the field of v1alpha1, and a plugin of OpenShift.
func TestPoliciesOfOtherDistributions(t *testing.T) {
	if _, err := Decode([]byte(head+"strategies: null\n"), "p"); err != nil {
		t.Errorf("Decode() with strategies: null = %v, want no error", err)
	}
	if _, err := Decode([]byte(head+"strategies: {}\n"), "p"); err == nil || !strings.Contains(err.Error(), `p:3: unknown field "strategies"`) {
		t.Errorf("Decode() with strategies: {} = %v, want an error", err)
	}
	const only = "plugin KubevirtMigrationAware exists only in OpenShift's descheduler: remove it from pluginConfig and plugins"
	for _, part := range []string{"  pluginConfig:\n  - name: KubevirtMigrationAware\n", "  pluginConfig:\n  - name: KubevirtMigrationAware\n    args: {}\n",
		"  plugins: {filter: {enabled: [KubevirtMigrationAware]}}\n"} {
		if _, err := Decode([]byte(head+"profiles:\n- name: a\n"+part), "p"); err == nil || !strings.Contains(err.Error(), only) {
			t.Errorf("Decode() with %q = %v, want %s", part, err, only)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(head + "profiles: [{name: a, pluginConfig: [{name: PodLifeTime, args: {states: [Running]}}]}]")
	f.Add(head + "a: &a [*a]")
	f.Add(oldPolicy)
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := Decode([]byte(text), "p"); err == nil && p.APIVersion != deschedule.APIVersion {
			t.Errorf("decoded policy %+v has apiVersion %q, want %q", p, p.APIVersion, deschedule.APIVersion)
		}
		_, _, _ = Migrate([]byte(text), "p")
	})
}

// The policy in deploy/cluster/descheduler is valid.
func TestShippedPolicyIsValid(t *testing.T) {
	const path = "../../../../deploy/cluster/descheduler/base/policy.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := Decode(text, path); err != nil || len(p.Profiles[0].Plugins.Deschedule.Enabled) != 4 {
		t.Errorf("Decode(%s) = %v, policy %+v, want four deschedule strategies", path, err, p)
	}
}

// A comment between two markers is a document: the error is about the document that follows.
func TestDecodeReportsSecondDocumentFirst(t *testing.T) {
	for text, want := range map[string]string{
		"---\n# my policy\n---\napiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n": "policy p:4: more than one document in the file",
		"- a\n---\nx: [\n": "policy p: not YAML: line 3: did not find expected node content",
		"- a\n":            `policy p:1: want a mapping such as "kind: DeschedulerPolicy"`,
	} {
		if _, err := Decode([]byte(text), "p"); err == nil || err.Error() != want {
			t.Errorf("Decode(%q) = %v, want %q", text, err, want)
		}
	}
}
