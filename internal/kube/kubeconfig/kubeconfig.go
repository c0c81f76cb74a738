// Package kubeconfig finds the API server of a program and the credentials for it.
package kubeconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"
)

// maxSize bounds a kubeconfig, in bytes.
const maxSize = 16 << 20

var errEmpty = errors.New("no current context: the file is missing or empty")

// Load returns the client configuration of the kubeconfig at path. With an empty path it returns
// that of the first of these: the files of $KUBECONFIG, the pod's service account, ~/.kube/config.
// It does not connect.
func Load(path string) (*rest.Config, error) {
	if path != "" {
		return fromFiles(&clientcmd.ClientConfigLoadingRules{ExplicitPath: path})
	}
	if list := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); list != "" {
		c, err := fromFiles(&clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(list)})
		if err != nil {
			return nil, fmt.Errorf("$KUBECONFIG %q: %w", list, err)
		}
		return c, nil
	}
	c, err := rest.InClusterConfig()
	if !errors.Is(err, rest.ErrNotInCluster) {
		return c, err
	}
	path = filepath.Join(homedir.HomeDir(), clientcmd.RecommendedHomeDir,
		clientcmd.RecommendedFileName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("not in a pod, and no kubeconfig: pass --kubeconfig, set $KUBECONFIG or "+
			"create %s", path)
	}
	return fromFiles(&clientcmd.ClientConfigLoadingRules{ExplicitPath: path})
}

// fromFiles returns the client configuration of the current context.
func fromFiles(rules *clientcmd.ClientConfigLoadingRules) (*rest.Config, error) {
	for _, path := range append([]string{rules.ExplicitPath}, rules.Precedence...) {
		if err := Check(path); path != "" && err != nil &&
			(path == rules.ExplicitPath || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
	}
	loaded, err := rules.Load()
	if err != nil {
		return nil, err
	}
	c, err := clientcmd.NewNonInteractiveClientConfig(*loaded, "", &clientcmd.ConfigOverrides{},
		rules).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errEmpty
	}
	return c, err
}

// Check returns an error for a path that client-go would read without an end.
func Check(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.Mode()&os.ModeDevice != 0:
		return fmt.Errorf("%s is a device, want a file", path)
	case info.Size() > maxSize:
		return fmt.Errorf("%s is larger than %d bytes: is it the kubeconfig?", path, maxSize)
	}
	return nil
}
