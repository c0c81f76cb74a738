package runner

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
)

const (
	// builtWith is the minor version of Kubernetes whose libraries this is built with: that of
	// k8s.io/client-go in go.mod. Build information would tell it, too, but not in every build.
	builtWith = 37
	// mostApart is how many minor versions the API server's may be away from that
	// (pkg/descheduler/runner.go, 0.36.0).
	mostApart = 3
)

// supported says what is wrong with the API server's version. As there that is for the log: the API
// may well be good enough.
func supported(ctx context.Context, api discovery.ServerVersionInterfaceWithContext) error {
	info, err := api.ServerVersionWithContext(ctx)
	if err != nil {
		return fmt.Errorf("ask for the API server's version: %w", err)
	}
	server, err := version.ParseSemantic(info.GitVersion)
	if err != nil {
		return fmt.Errorf("the API server's version %q: %w", info.GitVersion, err)
	}
	if apart := int(server.Minor()) - builtWith; apart < -mostApart || apart > mostApart {
		return fmt.Errorf("the API server is %s, and this is built for 1.%d: more than %d minor "+
			"versions apart", info.GitVersion, builtWith,
			mostApart)
	}
	return nil
}
