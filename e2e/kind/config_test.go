package kind

import (
	"bytes"
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
)

// decode reads a configuration as kind does (pkg/internal/apis/config/encoding/load.go, v0.33.0):
// an unknown field is an error.
func decode(text []byte) (c v1alpha4.Cluster, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err = d.Decode(&c)
	return c, err
}

// kind accepts the configuration: one node, of a cluster of its own name.
func TestTheConfigurationIsKinds(t *testing.T) {
	text, err := os.ReadFile("cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if c.APIVersion != "kind.x-k8s.io/v1alpha4" || c.Kind != "Cluster" || c.Name != "jettison" {
		t.Errorf("cluster.yaml has apiVersion %s, kind %s, name %q", c.APIVersion, c.Kind, c.Name)
	}
	if len(c.Nodes) != 1 || c.Nodes[0].Role != v1alpha4.ControlPlaneRole {
		t.Errorf("nodes %+v, want one of the control plane: with a second one kind taints the first", c.Nodes)
	}
	if _, err := decode(append(text, "node: []\n"...)); err == nil {
		t.Error("an unknown field is accepted, want an error")
	}
}
