package main

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// clustered has all objects that deploy/cluster renders.
type clustered struct {
	nodes           appsv1.Deployment
	config          v1.ConfigMap
	namespace       v1.Namespace
	account         v1.ServiceAccount
	cluster         rbacv1.ClusterRole
	leases, own     rbacv1.Role
	toCluster       rbacv1.ClusterRoleBinding
	toLeases, toOwn rbacv1.RoleBinding
	budget          policyv1.PodDisruptionBudget
	network         networkingv1.NetworkPolicy
	quota           v1.ResourceQuota
	flow            flowcontrolv1.FlowSchema
	policies        map[string]*admissionv1.ValidatingAdmissionPolicy
	bindings        map[string]*admissionv1.ValidatingAdmissionPolicyBinding
}

func clusterOf(t *testing.T) *clustered {
	t.Helper()
	folder := filepath.Join("..", "cluster")
	text, err := render(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	out := &clustered{policies: map[string]*admissionv1.ValidatingAdmissionPolicy{}, bindings: map[string]*admissionv1.ValidatingAdmissionPolicyBinding{}}
	for one := range strings.SplitSeq(string(text), "\n---\n") {
		var is struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal([]byte(one), &is); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{
			"Deployment jettison-cluster": &out.nodes, "ConfigMap jettison-cluster": &out.config, "Namespace ": &out.namespace,
			"ServiceAccount jettison-cluster": &out.account, "ClusterRole ": &out.cluster, "ClusterRoleBinding ": &out.toCluster,
			"Role kube-node-lease": &out.leases, "RoleBinding kube-node-lease": &out.toLeases,
			"Role jettison-cluster": &out.own, "RoleBinding jettison-cluster": &out.toOwn, "PodDisruptionBudget jettison-cluster": &out.budget,
			"NetworkPolicy jettison-cluster": &out.network, "ResourceQuota jettison-cluster": &out.quota,
			"FlowSchema ": &out.flow,
		}[is.Kind+" "+is.Metadata.Namespace]
		switch is.Kind {
		case "ValidatingAdmissionPolicy":
			out.policies[is.Metadata.Name] = &admissionv1.ValidatingAdmissionPolicy{}
			into = out.policies[is.Metadata.Name]
		case "ValidatingAdmissionPolicyBinding":
			out.bindings[is.Metadata.Name] = &admissionv1.ValidatingAdmissionPolicyBinding{}
			into = out.bindings[is.Metadata.Name]
		}
		if into == nil {
			t.Fatalf("%s renders an object that is not expected: %s %s/%s", folder, is.Kind, is.Metadata.Namespace, is.Metadata.Name)
		}
		if err := yaml.UnmarshalStrict([]byte(one), into); err != nil {
			t.Errorf("%s: strict decoding of rendered %s: %v", folder, is.Kind, err)
		}
	}
	return out
}

// jettison-cluster runs two unprivileged replicas, and writes only if configured to.
func TestTheCluster(t *testing.T) {
	r := clusterOf(t)
	s := &r.nodes.Spec.Template.Spec
	c := &s.Containers[0]
	security := c.SecurityContext
	var config map[string]string
	if err := yaml.Unmarshal([]byte(r.config.Data["config.yaml"]), &config); err != nil {
		t.Fatal(err)
	}
	for what, ok := range map[string]bool{
		"two of it":                  *r.nodes.Spec.Replicas == 2 && r.budget.Spec.MinAvailable.IntValue() == 1,
		"apart":                      len(s.TopologySpreadConstraints) == 1 && s.TopologySpreadConstraints[0].TopologyKey == v1.LabelHostname,
		"critical":                   s.PriorityClassName == "system-cluster-critical",
		"its token":                  s.ServiceAccountName == r.account.Name && *s.AutomountServiceAccountToken && !*r.account.AutomountServiceAccountToken,
		"no namespace of the host's": !s.HostPID && !s.HostNetwork && !s.HostIPC,
		"a user of its own":          *s.SecurityContext.RunAsNonRoot && *s.SecurityContext.RunAsUser > 0,
		"no capability":              slices.Equal(security.Capabilities.Drop, []v1.Capability{"ALL"}) && security.Capabilities.Add == nil,
		"no more than that":          !*security.AllowPrivilegeEscalation && *security.ReadOnlyRootFilesystem && security.Privileged == nil,
		"a restricted namespace":     r.namespace.Labels["pod-security.kubernetes.io/enforce"] == "restricted" && r.nodes.Namespace == r.namespace.Name,
		"nothing of the node's":      len(s.Volumes) == 1 && s.Volumes[0].ConfigMap.Name == r.config.Name && strings.HasPrefix(r.config.Name, "jettison-cluster-nodes-"),
		"no mode is set":             config["mode"] == "", // a mode of an upgrade would replace that of the operator
		"its own Lease":              config["leaderElectResourceNamespace"] == r.own.Namespace,
		"the probes' port":           config["address"] == ":10270" && c.Ports[0].ContainerPort == 10270 && c.LivenessProbe.HTTPGet.Path == "/healthz",
		"the file that is mounted":   slices.Equal(c.Args, []string{"nodes", "--config", c.VolumeMounts[0].MountPath + "/config.yaml"}),
		"bounded memory":             c.Resources.Limits.Memory().String() == "512Mi",
		"let in where that is limited": r.quota.Namespace == r.namespace.Name && len(r.quota.Spec.Hard) == 1 &&
			slices.Equal(r.quota.Spec.ScopeSelector.MatchExpressions[0].Values, []string{s.PriorityClassName}),
		"selected": reflect.DeepEqual(r.nodes.Spec.Selector.MatchLabels, r.budget.Spec.Selector.MatchLabels),
	} {
		if !ok {
			t.Errorf("not true of the Deployment: %s", what)
		}
	}
}

// A policy restricts each write that a role allows jettison-cluster nodes, and denies what it cannot
// evaluate. Only the deletion and the eviction of pods have no limits.
func TestPoliciesRestrictTheClustersWrites(t *testing.T) {
	r := clusterOf(t)
	bound := map[string]bool{"DELETE pods": true, "CREATE pods/eviction": true}
	expectDeny(t, r.policies, r.bindings, r.account.Namespace, r.account.Name, bound)
	expectRestricted(t, slices.Concat(r.cluster.Rules, r.leases.Rules, r.own.Rules), bound)
	if len(r.policies) != 5 || len(r.bindings) != 5 {
		t.Errorf("%d policies, %d bindings, want 5 each", len(r.policies), len(r.bindings))
	}
}

// expectDeny checks that policies apply to a service account only, and deny what they cannot
// evaluate. It adds the writes that they restrict to bound.
func expectDeny(t *testing.T, policies map[string]*admissionv1.ValidatingAdmissionPolicy, bindings map[string]*admissionv1.ValidatingAdmissionPolicyBinding,
	namespace, account string, bound map[string]bool) {
	t.Helper()
	for name, p := range policies {
		b := bindings[name]
		if b == nil || b.Spec.PolicyName != name || !slices.Equal(b.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) ||
			b.Spec.MatchResources != nil || *p.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("policy %s is bound by %+v", name, b)
		}
		if who := "request.userInfo.username == 'system:serviceaccount:" + namespace + ":" + account + "'"; len(p.Spec.MatchConditions) != 1 ||
			p.Spec.MatchConditions[0].Expression != who {
			t.Errorf("match conditions of policy %s = %+v, want %s", name, p.Spec.MatchConditions, who)
		}
		for _, rule := range p.Spec.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				for _, op := range rule.Operations {
					bound[string(op)+" "+resource] = true
				}
			}
		}
	}
}

// expectRestricted checks that each write of a role is bound.
func expectRestricted(t *testing.T, rules []rbacv1.PolicyRule, bound map[string]bool) {
	t.Helper()
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				op := map[string]string{"patch": "UPDATE", "update": "UPDATE", "create": "CREATE", "delete": "DELETE"}[verb]
				if op != "" && !bound[op+" "+resource] {
					t.Errorf("no policy restricts %s of %s", verb, resource)
				}
			}
		}
	}
}

// Only namespaces that an administrator has labelled reach the status port.
func TestStatusPortIsClosedToPods(t *testing.T) {
	r := clusterOf(t)
	expectScrapeOnly(t, &r.network, &r.nodes)
}

// expectScrapeOnly checks that a policy admits only pods of labelled namespaces, to the port of a
// Deployment.
func expectScrapeOnly(t *testing.T, p *networkingv1.NetworkPolicy, d *appsv1.Deployment) {
	t.Helper()
	port := intstr.FromInt32(d.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort)
	tcp := v1.ProtocolTCP
	want := networkingv1.NetworkPolicySpec{
		PodSelector: *d.Spec.Selector, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"jettison/scrape": "true"}}}},
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}},
		}},
	}
	if !reflect.DeepEqual(p.Spec, want) || p.Namespace != d.Namespace {
		t.Errorf("network policy in namespace %q = %+v, want in %q %+v", p.Namespace, p.Spec, d.Namespace, want)
	}
}

// The API server serves all requests of jettison-cluster nodes with the priority of
// kube-controller-manager's controllers, not with that of tenants' service accounts, to which the
// FlowSchemas of the API server from precedence 9000 apply (k8s.io/apiserver
// pkg/apis/flowcontrol/bootstrap, 0.37.2).
func TestTheClustersPriority(t *testing.T) {
	r := clusterOf(t)
	s := &r.flow.Spec
	if s.PriorityLevelConfiguration.Name != "workload-high" || s.MatchingPrecedence >= 9000 || len(s.Rules) != 1 {
		t.Fatalf("FlowSchema = %+v, want one rule, priority workload-high and a precedence below 9000", s)
	}
	all := []string{"*"}
	want := flowcontrolv1.PolicyRulesWithSubjects{
		Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount,
			ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Name: r.account.Name, Namespace: r.account.Namespace}}},
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, Namespaces: all, ClusterScope: true}},
	}
	if !reflect.DeepEqual(s.Rules[0], want) {
		t.Errorf("rule of the FlowSchema = %+v, want %+v", s.Rules[0], want)
	}
}

// All rights of jettison-cluster nodes.
func TestTheClustersRights(t *testing.T) {
	r := clusterOf(t)
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	for name, got := range map[string]struct{ is, want []rbacv1.PolicyRule }{
		"cluster": {r.cluster.Rules, []rbacv1.PolicyRule{
			rule("", "nodes", "get", "list", "watch", "patch"), rule("", "nodes/status", "patch"), rule("", "pods", "get", "list", "watch", "delete"),
			rule("", "pods/status", "patch"), rule("", "pods/eviction", "create"), rule("", "events", "create", "patch"),
		}},
		"leases": {r.leases.Rules, []rbacv1.PolicyRule{rule("coordination.k8s.io", "leases", "list", "watch")}},
		"own":    {r.own.Rules, []rbacv1.PolicyRule{rule("coordination.k8s.io", "leases", "get", "create", "update")}},
	} {
		if !reflect.DeepEqual(got.is, got.want) {
			t.Errorf("rules of the role %s = %+v", name, got.is)
		}
	}
	who := []rbacv1.Subject{{Kind: "ServiceAccount", Name: r.account.Name, Namespace: r.account.Namespace}}
	for _, subjects := range [][]rbacv1.Subject{r.toCluster.Subjects, r.toLeases.Subjects, r.toOwn.Subjects} {
		if !reflect.DeepEqual(subjects, who) {
			t.Errorf("subjects of the bindings = %+v", subjects)
		}
	}
	if r.toCluster.RoleRef.Name != r.cluster.Name || r.toLeases.RoleRef.Name != r.leases.Name || r.toOwn.RoleRef.Name != r.own.Name {
		t.Error("a binding refers to another role")
	}
}
