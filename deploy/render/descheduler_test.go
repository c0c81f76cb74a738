package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// descheduler has the objects of a folder, decoded strictly.
type descheduler struct {
	pod        v1.PodSpec
	deployment appsv1.Deployment
	network    networkingv1.NetworkPolicy
	config     v1.ConfigMap
	cluster    rbacv1.ClusterRole
	own        rbacv1.Role
	policies   map[string]*admissionv1.ValidatingAdmissionPolicy
	bindings   map[string]*admissionv1.ValidatingAdmissionPolicyBinding
	kinds      map[string]int
}

func deschedulerOf(t *testing.T, folder string) *descheduler {
	t.Helper()
	text, err := render(filesys.MakeFsOnDisk(), filepath.Join("..", "cluster", "descheduler", folder))
	if err != nil {
		t.Fatal(err)
	}
	out := &descheduler{kinds: map[string]int{}, policies: map[string]*admissionv1.ValidatingAdmissionPolicy{},
		bindings: map[string]*admissionv1.ValidatingAdmissionPolicyBinding{}}
	var job batchv1.Job
	var cron batchv1.CronJob
	for one := range strings.SplitSeq(string(text), "\n---\n") {
		var is struct{ Kind string }
		if err := yaml.Unmarshal([]byte(one), &is); err != nil {
			t.Fatal(err)
		}
		out.kinds[is.Kind]++
		into := map[string]any{
			"Job": &job, "CronJob": &cron, "Deployment": &out.deployment, "NetworkPolicy": &out.network, "ConfigMap": &out.config, "ClusterRole": &out.cluster, "Role": &out.own,
			"ValidatingAdmissionPolicy": &admissionv1.ValidatingAdmissionPolicy{}, "ValidatingAdmissionPolicyBinding": &admissionv1.ValidatingAdmissionPolicyBinding{},
			"ServiceAccount": &v1.ServiceAccount{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{}, "RoleBinding": &rbacv1.RoleBinding{},
		}[is.Kind]
		if err := yaml.UnmarshalStrict([]byte(one), into); err != nil {
			t.Errorf("%s: strict decoding of rendered %s: %v", folder, is.Kind, err)
		}
		switch into := into.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			out.policies[into.Name] = into
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			out.bindings[into.Name] = into
		}
	}
	switch folder {
	case "job":
		out.pod = job.Spec.Template.Spec
	case "cronjob":
		out.pod = cron.Spec.JobTemplate.Spec.Template.Spec
	case "deployment":
		out.pod = out.deployment.Spec.Template.Spec
	}
	return out
}

func TestDeschedulersAreUnprivileged(t *testing.T) {
	common := map[string]int{"ServiceAccount": 1, "ClusterRole": 1, "ClusterRoleBinding": 1, "ConfigMap": 1, "ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1}
	for folder, kinds := range map[string][]string{"job": {"Job"}, "cronjob": {"CronJob"}, "deployment": {"Deployment", "Role", "RoleBinding", "NetworkPolicy",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}} {
		d, want := deschedulerOf(t, folder), maps.Clone(common)
		for _, kind := range kinds {
			want[kind]++
		}
		if !maps.Equal(d.kinds, want) {
			t.Errorf("objects rendered from %s = %v, want %v", folder, d.kinds, want)
		}
		c := d.pod.Containers[0]
		if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Contains(s.Capabilities.Drop, "ALL") ||
			!*d.pod.SecurityContext.RunAsNonRoot || d.pod.HostNetwork || d.pod.Volumes[0].ConfigMap == nil {
			t.Errorf("%s: pod is not unprivileged: %+v", folder, d.pod)
		}
		if d.pod.Volumes[0].ConfigMap.Name != d.config.Name || d.config.Data["policy.yaml"] == "" ||
			!slices.Contains(c.Args, "--policy="+c.VolumeMounts[0].MountPath+"/policy.yaml") {
			t.Errorf("%s: policy is not mounted at the path of the arguments: %v, %+v", folder, c.Args, d.pod.Volumes)
		}
		if elects := slices.Contains(c.Args, "--leader-elect"); elects != (folder == "deployment") {
			t.Errorf("%s: unexpected arguments of the program: %v", folder, c.Args)
		}
	}
}

// A policy restricts each write that a role allows the descheduler, except evictions.
func TestPoliciesRestrictTheDescheduler(t *testing.T) {
	d := deschedulerOf(t, "deployment")
	bound := map[string]bool{"CREATE pods/eviction": true}
	expectDeny(t, d.policies, d.bindings, "kube-system", "jettison-descheduler", bound)
	expectRestricted(t, slices.Concat(d.cluster.Rules, d.own.Rules), bound)
	if len(d.policies) != 2 {
		t.Errorf("%d policies, want 2", len(d.policies))
	}
}

// Only namespaces that an administrator has labelled reach the metrics.
func TestDeschedulerPortIsClosedToPods(t *testing.T) {
	d := deschedulerOf(t, "deployment")
	expectScrapeOnly(t, &d.network, &d.deployment)
}

// The descheduler writes only evictions, events about them, and with replicas its Lease.
func TestDeschedulerRights(t *testing.T) {
	d := deschedulerOf(t, "deployment")
	var writes []string
	for _, rule := range append(d.cluster.Rules, d.own.Rules...) {
		for _, verb := range rule.Verbs {
			if verb == "get" || verb == "list" || verb == "watch" {
				continue
			}
			for _, resource := range rule.Resources {
				writes = append(writes, verb+" "+resource+" "+strings.Join(rule.ResourceNames, ","))
			}
		}
	}
	want := []string{"create pods/eviction ", "create events ", "create leases ", "update leases descheduler"}
	if !slices.Equal(writes, want) {
		t.Errorf("writes allowed to the descheduler = %q, want %q", writes, want)
	}
}
