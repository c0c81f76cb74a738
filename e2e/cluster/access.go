package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// secrets writes keys, certificates and kubeconfigs.
func (c *Cluster) secrets() (err error) {
	if c.ca, err = newAuthority(); err != nil {
		return err
	}
	serving, servingErr := c.ca.server("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1", serviceAddress)
	kubelets, kubeletsErr := c.ca.client("kube-apiserver-kubelet-client", "system:masters")
	accounts, accountsErr := accountKeys()
	admin, adminErr := c.ca.client("admin", "system:masters")
	if err := errors.Join(servingErr, kubeletsErr, accountsErr, adminErr); err != nil {
		return err
	}
	files := map[string][]byte{}
	for name, p := range map[string]pair{"ca": c.ca.pair, "apiserver": serving, "kubelet-client": kubelets, "accounts": accounts} {
		files[name+".crt"], files[name+".key"] = p.cert, p.key
	}
	c.Admin = c.config(admin)
	if files["admin.conf"], err = Kubeconfig(c.Admin); err != nil {
		return err
	}
	c.kubeconf = c.path("admin.conf")
	for _, name := range []string{ControllerManager, Scheduler} {
		user, err := c.ca.client("system:" + name)
		if err != nil {
			return err
		}
		if files[name+".conf"], err = Kubeconfig(c.config(user)); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(c.path(name), text, 0o600); err != nil {
			return err
		}
	}
	cert, err := tls.X509KeyPair(admin.cert, admin.key)
	// Self-signed serving certificates of the parts are not verified.
	c.http = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}},
	}}
	return err
}

// config returns the configuration of a client with a certificate. A negative QPS means no limit.
func (c *Cluster) config(p pair) *rest.Config {
	return &rest.Config{Host: c.url(APIServer), QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAData: c.ca.pair.cert, CertData: p.cert, KeyData: p.key,
	}}
}

// As returns the configuration of a user in these groups, with a client certificate.
func (c *Cluster) As(user string, groups ...string) *rest.Config {
	c.t.Helper()
	c.requireOwnCluster()
	p, err := c.ca.client(user, groups...)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.config(p)
}

// Token requests a token of a service account from the API server, as a kubelet does for a pod. It
// is bound to a Pod, which binds it to the pod's node, or to a Node, or to nothing (nil). The extra
// field authentication.kubernetes.io/node-name of the token's user names the node.
func (c *Cluster) Token(namespace, account string, bound *authv1.BoundObjectReference) string {
	c.t.Helper()
	day := int64(24 * 3600) // tests do not renew tokens
	request := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{ExpirationSeconds: &day, BoundObjectRef: bound}}
	answer, err := c.Client.CoreV1().ServiceAccounts(namespace).CreateToken(c.t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatalf("request a token of service account %s/%s: %v", namespace, account, err)
	}
	return answer.Status.Token
}

// NodeToken returns a Token bound to an existing node.
func (c *Cluster) NodeToken(namespace, account, node string) string {
	c.t.Helper()
	n, err := c.Client.CoreV1().Nodes().Get(c.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.Token(namespace, account, &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID})
}

// PodToken returns a Token bound to an existing pod.
func (c *Cluster) PodToken(pod *v1.Pod) string {
	c.t.Helper()
	return c.Token(pod.Namespace, pod.Spec.ServiceAccountName, &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
}

// Bearer returns the configuration of a client with a token.
func (c *Cluster) Bearer(token string) *rest.Config {
	out := rest.AnonymousClientConfig(c.Admin)
	out.BearerToken, out.QPS = token, -1
	return out
}

// Kubeconfig returns a configuration as a file, for programs.
func Kubeconfig(c *rest.Config) ([]byte, error) {
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": {Server: c.Host, CertificateAuthorityData: c.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			"me": {ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken},
		},
		Contexts: map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "me"}}, CurrentContext: "test",
	})
}

// requireOwnCluster skips a test that needs a cluster started here, with its processes and its authority's key.
func (c *Cluster) requireOwnCluster() {
	c.t.Helper()
	if c.dir == "" {
		c.t.Skip("needs a separate cluster: run make e2e-cluster")
	}
}

// existing returns a cluster that was started outside of the tests.
func existing(t testing.TB, file string) *Cluster {
	t.Helper()
	admin, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	admin.QPS = -1
	c := &Cluster{t: t, Admin: admin, kubeconf: file}
	program, err := exec.LookPath("kubectl")
	if err == nil {
		c.bin = filepath.Dir(program)
		c.Client, err = kubernetes.NewForConfig(admin)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Kubectl runs kubectl as the administrator, with a text on its stdin, and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), append([]string{"--kubeconfig=" + c.kubeconf}, args...)...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), errors.Join(err, errors.New("kubectl "+strings.Join(args, " ")+": "+strings.TrimSpace(complaint.String())))
	}
	return out.String(), nil
}
