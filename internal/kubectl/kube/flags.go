package kube

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"jettison/internal/base/commandline"
	"jettison/internal/kube/kubeconfig"
)

// Defaults of flags.
const (
	defaultNamespace      = "kube-system"
	defaultLeaseNamespace = "jettison-system"
	defaultTimeout        = "30s"
)

// Limits on requests, which are those of kubectl.
const (
	requestsPerSecond = 50
	burst             = 300
)

// Flags are the flags with which kubectl selects a cluster and a user. They come from client-go, and
// have the names of genericclioptions.ConfigFlags. That package would add 32 modules for kubectl's
// other commands (kustomize, OpenAPI, a cache of discovery).
type Flags struct {
	overrides      clientcmd.ConfigOverrides
	kubeconfig     string
	leaseNamespace string
}

// Add adds the flags to those of the root command.
func (f *Flags) Add(fs *pflag.FlagSet) {
	fs.StringVar(&f.kubeconfig, clientcmd.RecommendedConfigPathFlag, "",
		"Path to the kubeconfig file to use for CLI requests.")
	flags := clientcmd.RecommendedConfigOverrideFlags("")
	flags.AuthOverrideFlags.Username.LongName = "" // removed from API servers
	flags.AuthOverrideFlags.Password.LongName = ""
	flags.ClusterOverrideFlags.APIServer.ShortName = "s"
	flags.Timeout.Default = defaultTimeout
	namespace := &flags.ContextOverrideFlags.Namespace
	namespace.Description = "namespace of the agents' pods (default " + defaultNamespace + ")"
	clientcmd.BindOverrideFlags(&f.overrides, fs, flags)
	fs.StringVar(&f.leaseNamespace, "lease-namespace", defaultLeaseNamespace,
		"namespace of the Leases with the nodes' load")
	for _, flag := range []string{clientcmd.FlagContext, clientcmd.FlagClusterName,
		clientcmd.FlagAuthInfoName, clientcmd.FlagNamespace, clientcmd.FlagImpersonate,
		clientcmd.FlagImpersonateUID, clientcmd.FlagImpersonateGroup, clientcmd.FlagBearerToken,
		clientcmd.FlagAPIServer, clientcmd.FlagTLSServerName, clientcmd.FlagTimeout,
		clientcmd.FlagProxyURL, "lease-namespace"} {
		commandline.Values[string](fs, flag)
	}
}

// Client returns a client. version is that of this program. An error is a usage error.
func (f *Flags) Client(version string) (*Client, error) {
	config, err := f.config()
	if err != nil {
		return nil, commandline.Usage(err)
	}
	config.QPS, config.Burst = requestsPerSecond, burst
	config.UserAgent = "kubectl-jettison/" + version
	namespace := cmp.Or(f.overrides.Context.Namespace, defaultNamespace)
	for flag, name := range map[string]string{clientcmd.FlagNamespace: namespace,
		"lease-namespace": f.leaseNamespace} {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return nil, commandline.Usage(fmt.Errorf("--%s %.64q: %s", flag, name, wrong[0]))
		}
	}
	return newClient(config, namespace, f.leaseNamespace)
}

func (f *Flags) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if rules.ExplicitPath = f.kubeconfig; f.kubeconfig != "" {
		if err := kubeconfig.Check(f.kubeconfig); err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
	}
	for _, path := range rules.Precedence {
		if err := kubeconfig.Check(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
	}
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &f.overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no kubeconfig: pass --kubeconfig, set $KUBECONFIG or create ~/.kube/config")
	}
	return c, err
}
