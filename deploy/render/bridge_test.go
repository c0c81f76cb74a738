package main

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// withBridges are the overlays with the bridge, which the tests of this file render.
var withBridges = []string{"bridge", "dry-run", "canary", "openshift"}

// bridged has the objects that an overlay with the bridge renders in addition to the agent's.
type bridged struct {
	agent, bridge appsv1.DaemonSet
	config        v1.ConfigMap
	namespace     v1.Namespace
	account       v1.ServiceAccount
	cluster       rbacv1.ClusterRole
	own           rbacv1.Role
	toCluster     rbacv1.ClusterRoleBinding
	toOwn         rbacv1.RoleBinding
	quota         v1.ResourceQuota
	policies      map[string]*admissionv1.ValidatingAdmissionPolicy
	bindings      map[string]*admissionv1.ValidatingAdmissionPolicyBinding
	constraints   constraints
}

// constraints are the security context constraints of OpenShift, as far as they are tested.
type constraints struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Users, Groups, Volumes, SeccompProfiles, RequiredDropCapabilities []string

	AllowPrivilegedContainer, AllowPrivilegeEscalation, AllowHostDirVolumePlugin, AllowHostIPC, AllowHostNetwork, AllowHostPID,
	AllowHostPorts, ReadOnlyRootFilesystem bool

	AllowedCapabilities, DefaultAddCapabilities []string
	Priority                                    *int32
	RunAsUser, SELinuxContext, FSGroup          struct {
		Type string
		UID  int64
	}
	SupplementalGroups struct{ Type string }
}

// bridgeOf renders a folder and decodes it strictly.
func bridgeOf(t *testing.T, folder string) *bridged {
	t.Helper()
	text, err := render(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	out := &bridged{
		policies: map[string]*admissionv1.ValidatingAdmissionPolicy{}, bindings: map[string]*admissionv1.ValidatingAdmissionPolicyBinding{},
	}
	for one := range strings.SplitSeq(string(text), "\n---\n") {
		var is struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(one), &is); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{
			"DaemonSet jettison": &out.agent, "DaemonSet jettison-bridge": &out.bridge, "Namespace jettison-system": &out.namespace,
			"ServiceAccount jettison-bridge": &out.account, "ClusterRole jettison-bridge": &out.cluster, "Role jettison-bridge": &out.own,
			"SecurityContextConstraints jettison-bridge": &out.constraints, "ClusterRoleBinding jettison-bridge": &out.toCluster, "RoleBinding jettison-bridge": &out.toOwn, "ResourceQuota jettison-bridge": &out.quota,
		}[is.Kind+" "+is.Metadata.Name]
		switch is.Kind {
		case "ConfigMap":
			into = &out.config
		case "ValidatingAdmissionPolicy":
			out.policies[is.Metadata.Name] = &admissionv1.ValidatingAdmissionPolicy{}
			into = out.policies[is.Metadata.Name]
		case "ValidatingAdmissionPolicyBinding":
			out.bindings[is.Metadata.Name] = &admissionv1.ValidatingAdmissionPolicyBinding{}
			into = out.bindings[is.Metadata.Name]
		}
		if into == nil {
			t.Fatalf("%s renders an object that is not expected: %s %s", folder, is.Kind, is.Metadata.Name)
		}
		if err := yaml.UnmarshalStrict([]byte(one), into); err != nil {
			t.Errorf("%s: strict decoding of rendered %s: %v", folder, is.Kind, err)
		}
	}
	return out
}

func withBridge(t *testing.T) *bridged {
	t.Helper()
	return bridgeOf(t, filepath.Join("..", "overlays", "bridge"))
}

// withComponent renders the overlay with one more component in its kustomization.
func withComponent(t *testing.T, component string) *bridged {
	t.Helper()
	fs, err := filesys.NewTmpConfirmedDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = filesys.MakeFsOnDisk().RemoveAll(fs.String()) })
	copyManifests(t, "..", fs.String())
	own := filepath.Join(fs.String(), "own")
	write(t, filepath.Join(own, "kustomization.yaml"), `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../overlays/bridge]
components: [../components/`+component+`]
`)
	return bridgeOf(t, own)
}

// The bridge has a token, and no privilege but the socket's group. The agent has the group, and no
// token.
func TestTheBridge(t *testing.T) {
	r := withBridge(t)
	s := &r.bridge.Spec.Template.Spec
	c := &s.Containers[0]
	security := c.SecurityContext
	for what, ok := range map[string]bool{
		"a namespace of its own":     r.bridge.Namespace == "jettison-system" && r.account.Namespace == "jettison-system" && r.agent.Namespace == "kube-system",
		"critical":                   s.PriorityClassName == "system-node-critical",
		"its token":                  s.ServiceAccountName == r.account.Name && *s.AutomountServiceAccountToken && !*r.account.AutomountServiceAccountToken,
		"the agent has none":         !*r.agent.Spec.Template.Spec.AutomountServiceAccountToken,
		"no namespace of the host's": !s.HostPID && !s.HostNetwork && !s.HostIPC,
		"a user of its own":          *s.SecurityContext.RunAsNonRoot && *s.SecurityContext.RunAsUser > 0 && *s.SecurityContext.RunAsGroup > 0,
		"no capability":              slices.Equal(security.Capabilities.Drop, []v1.Capability{"ALL"}) && security.Capabilities.Add == nil,
		"no more than that":          !*security.AllowPrivilegeEscalation && *security.ReadOnlyRootFilesystem && security.Privileged == nil,
		"the runtime's seccomp":      s.SecurityContext.SeccompProfile.Type == v1.SeccompProfileTypeRuntimeDefault && s.SecurityContext.SELinuxOptions == nil,
		"bounded memory":             c.Resources.Limits.Memory().String() == "128Mi",
		"the socket's folder alone": len(s.Volumes) == 1 && s.Volumes[0].HostPath.Path == "/run/jettison" && len(c.VolumeMounts) == 1 &&
			c.VolumeMounts[0].ReadOnly && c.VolumeMounts[0].MountPath == "/run/jettison",
		"one container":   len(s.Containers) == 1 && len(s.InitContainers) == 0,
		"selected":        maps.Equal(r.bridge.Spec.Selector.MatchLabels, map[string]string{"app.kubernetes.io/name": "jettison-bridge"}),
		"its pod is":      r.bridge.Spec.Template.Labels["app.kubernetes.io/name"] == "jettison-bridge",
		"the agent's is":  r.agent.Spec.Template.Labels["app.kubernetes.io/name"] == "jettison",
		"hostPath is let": r.namespace.Labels["pod-security.kubernetes.io/enforce"] == "privileged",
		"let in where that is limited": r.quota.Namespace == "jettison-system" && len(r.quota.Spec.Hard) == 1 &&
			slices.Equal(r.quota.Spec.ScopeSelector.MatchExpressions[0].Values, []string{s.PriorityClassName}),
		"one node at a time": rollsOutSlowly(&r.bridge),
		"not beside others":  len(s.Tolerations) == 1 && s.Tolerations[0].Operator == v1.TolerationOpExists,
	} {
		if !ok {
			t.Errorf("not true of the bridge's pod: %s", what)
		}
	}
	node(t, c)
	var config struct{ SocketGroup string }
	if err := yaml.Unmarshal([]byte(r.config.Data["config.yaml"]), &config); err != nil || config.SocketGroup != "64113" || *s.SecurityContext.RunAsGroup != 64113 {
		t.Errorf("agent's socketGroup is %q (%v), want the bridge's group %d", config.SocketGroup, err, *s.SecurityContext.RunAsGroup)
	}
}

// All rights of a bridge.
func TestTheBridgesRights(t *testing.T) {
	r := withBridge(t)
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	want := []rbacv1.PolicyRule{
		rule("", "pods", "get", "list", "watch"), rule("", "pods/status", "patch"), rule("", "nodes", "get"), rule("", "nodes/status", "patch"),
		rule("", "events", "create"),
	}
	if !reflect.DeepEqual(r.cluster.Rules, want) || r.cluster.AggregationRule != nil {
		t.Errorf("rules of the cluster role = %+v", r.cluster.Rules)
	}
	if want := []rbacv1.PolicyRule{rule("coordination.k8s.io", "leases", "create", "patch")}; !reflect.DeepEqual(r.own.Rules, want) {
		t.Errorf("rules of the namespaced role = %+v", r.own.Rules)
	}
	who := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "jettison-bridge", Namespace: "jettison-system"}}
	if !reflect.DeepEqual(r.toCluster.Subjects, who) || !reflect.DeepEqual(r.toOwn.Subjects, who) || r.own.Namespace != "jettison-system" ||
		r.toOwn.Namespace != "jettison-system" || r.toCluster.RoleRef.Name != r.cluster.Name || r.toOwn.RoleRef.Name != r.own.Name {
		t.Errorf("bindings of the roles = %+v, %+v", r.toCluster, r.toOwn)
	}
}

// A policy restricts each write that a role allows a bridge to its node, and denies what it cannot
// evaluate.
func TestPoliciesRestrictWrites(t *testing.T) {
	r := withBridge(t)
	keepsEvicted(t, r.policies["jettison-evicted"], r.bindings["jettison-evicted"])
	delete(r.policies, "jettison-evicted")
	delete(r.bindings, "jettison-evicted")
	bound := map[string]bool{}
	for name, p := range r.policies {
		b := r.bindings[name]
		if b == nil || b.Spec.PolicyName != name || !slices.Equal(b.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) ||
			b.Spec.MatchResources != nil || *p.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("policy %s is bound by %+v", name, b)
		}
		if len(p.Spec.MatchConditions) != 1 || p.Spec.MatchConditions[0].Expression !=
			"request.userInfo.username == 'system:serviceaccount:jettison-system:jettison-bridge'" {
			t.Errorf("match conditions of policy %s = %+v", name, p.Spec.MatchConditions)
		}
		if p.Spec.Validations[0].Expression != "variables.node != ''" {
			t.Errorf("policy %s accepts a token without a node", name)
		}
		for _, rule := range p.Spec.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				for _, op := range rule.Operations {
					bound[string(op)+" "+resource] = true
				}
			}
		}
	}
	for _, rule := range slices.Concat(r.cluster.Rules, r.own.Rules) {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				op := map[string]string{"patch": "UPDATE", "update": "UPDATE", "create": "CREATE", "delete": "DELETE"}[verb]
				if op != "" && !bound[op+" "+resource] {
					t.Errorf("no policy restricts %s of %s", verb, resource)
				}
			}
		}
	}
	if len(r.policies) != 4 || len(r.bindings) != 4 {
		t.Errorf("%d policies, %d bindings, want as many", len(r.policies), len(r.bindings))
	}
}

// keepsEvicted checks the policy that applies to all users' writes: only to statuses of pods that a
// bridge has set to Failed. No other write is delayed or fails if the policy cannot be evaluated.
func keepsEvicted(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	if p == nil || b == nil || b.Spec.PolicyName != p.Name || !slices.Equal(b.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) {
		t.Fatalf("policy %+v is bound by %+v", p, b)
	}
	rules, when := p.Spec.MatchConstraints.ResourceRules, p.Spec.MatchConditions
	if *p.Spec.FailurePolicy != admissionv1.Ignore || len(rules) != 1 || !slices.Equal(rules[0].Resources, []string{"pods", "pods/status"}) ||
		!slices.Equal(rules[0].Operations, []admissionv1.OperationType{admissionv1.Update}) {
		t.Errorf("policy applies to resources %+v", rules)
	}
	if len(when) != 1 || !strings.HasPrefix(when[0].Expression, "oldObject.status.?phase.orValue('') == 'Failed' && ('jettison/evicted' in oldObject.metadata") {
		t.Errorf("match conditions of the policy = %+v", when)
	}
	if v := p.Spec.Validations; len(v) != 3 || !strings.HasPrefix(v[0].Expression, "!('jettison/evicted' in object.metadata") ||
		!strings.HasPrefix(v[1].Expression, "!variables.bound || object.status.?phase.orValue('') == 'Failed'") ||
		!strings.Contains(v[2].Expression, "object.status.?reason.orValue('') != ''") {
		t.Errorf("validations of the policy = %+v", v)
	}
}

// In the component for clusters without those policies the bridge writes only events, and has no
// other rights.
func TestBridgeOfEventsOnly(t *testing.T) {
	r := withComponent(t, "bridge-events")
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}},
	}
	if len(r.policies)+len(r.bindings) > 0 || !reflect.DeepEqual(r.cluster.Rules, want) || r.own.Name+r.toOwn.Name != "" {
		t.Errorf("want no policies and rights for events: policies %v, rights %+v, of Leases %q %q", r.policies, r.cluster.Rules, r.own.Name, r.toOwn.Name)
	}
	if args := r.bridge.Spec.Template.Spec.Containers[0].Args; !slices.Equal(args, []string{"run", "--evicted-status=false", "--lease-namespace="}) {
		t.Errorf("arguments of the bridge = %q", args)
	}
}

// The component for SELinux changes only the bridge's type.
func TestBridgeWithSELinux(t *testing.T) {
	r, plain := withComponent(t, "bridge-selinux"), withBridge(t)
	o := r.bridge.Spec.Template.Spec.SecurityContext.SELinuxOptions
	if o == nil || o.Type != "spc_t" {
		t.Errorf("SELinux options of the bridge = %+v", o)
	}
	r.bridge.Spec.Template.Spec.SecurityContext.SELinuxOptions = nil
	if !reflect.DeepEqual(r, plain) {
		t.Error("the component changes more than the SELinux options")
	}
}

// An installation in three steps changes only the agent's arguments, then only the nodes.
func TestSteps(t *testing.T) {
	plain := withBridge(t)
	dry := bridgeOf(t, "../overlays/dry-run")
	if c := &dry.agent.Spec.Template.Spec.Containers[0]; !slices.Equal(c.Args, []string{"run", "--dry-run"}) {
		t.Errorf("arguments of the agent in the dry run = %q", c.Args)
	} else {
		c.Args = c.Args[:1]
	}
	if !reflect.DeepEqual(dry, plain) {
		t.Error("the overlay dry-run changes more than the agent's arguments")
	}
	canary := bridgeOf(t, "../overlays/canary")
	for _, set := range []*appsv1.DaemonSet{&canary.agent, &canary.bridge} {
		if selector := set.Spec.Template.Spec.NodeSelector; selector["jettison/canary"] != "yes" {
			t.Errorf("node selector of the DaemonSet %s in the overlay canary = %v", set.Name, selector)
		}
		delete(set.Spec.Template.Spec.NodeSelector, "jettison/canary")
	}
	if !reflect.DeepEqual(canary, plain) {
		t.Error("the overlay canary changes more than the node selectors")
	}
}

// The constraints of OpenShift admit the bridge's pod, and nothing that it does not need.
func TestBridgeOnOpenShift(t *testing.T) {
	r := bridgeOf(t, "../overlays/openshift")
	s := r.bridge.Spec.Template.Spec
	c := r.constraints
	if s.SecurityContext.SELinuxOptions == nil || r.config.Data["config.yaml"] == "" || volume(&r.agent.Spec.Template.Spec, "runtime").HostPath.Path != "/run/crio" {
		t.Errorf("the overlay lacks a type of SELinux, the configuration or the folder of CRI-O: %+v", s.SecurityContext)
	}
	for what, ok := range map[string]bool{
		"only the bridge's account": slices.Equal(c.Users, []string{"system:serviceaccount:" + r.bridge.Namespace + ":" + s.ServiceAccountName}) && len(c.Groups) == 0,
		"its user":                  c.RunAsUser.Type == "MustRunAs" && c.RunAsUser.UID == *s.SecurityContext.RunAsUser,
		"its type of SELinux":       c.SELinuxContext.Type == "RunAsAny",
		"its volumes":               slices.Equal(c.Volumes, []string{"hostPath", "projected"}) && c.AllowHostDirVolumePlugin,
		"its seccomp profile":       slices.Equal(c.SeccompProfiles, []string{"runtime/default"}),
		"no privilege": !c.AllowPrivilegedContainer && !c.AllowPrivilegeEscalation && !c.AllowHostIPC && !c.AllowHostNetwork && !c.AllowHostPID && !c.AllowHostPorts &&
			c.ReadOnlyRootFilesystem && slices.Equal(c.RequiredDropCapabilities, []string{"ALL"}) && c.AllowedCapabilities == nil,
	} {
		if !ok {
			t.Errorf("not true of the constraints: %s: %+v", what, c)
		}
	}
}
