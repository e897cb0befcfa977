// Package manifests_test checks the files for Kubernetes and for Docker Compose against the types of their fields, and
// what every node in them must have. It is a module of its own, so that settee does not depend on these types.
package manifests_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const root = "../.."

var program string // settee, built once

func TestMain(m *testing.M) { os.Exit(withProgram(m.Run)) }

func withProgram(run func() int) int {
	dir, err := os.MkdirTemp("", "settee-manifests")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "settee")
	// What go run links is in Go's cache, and the tests of other packages use it, too.
	build := exec.Command("go", "run", "-exec", "cp", "./cmd/settee", program)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	return run()
}

// accepted checks that settee accepts the flags of a command for a node, in an environment.
func accepted(t *testing.T, environ []string, command ...string) {
	t.Helper()
	require.NotEmpty(t, command)
	require.Contains(t, []string{"serve", "health"}, command[0])
	config := exec.Command(program, append([]string{"config"}, command[1:]...)...)
	config.Env = environ
	out, err := config.CombinedOutput()
	require.NoError(t, err, "%v: %s", command, out)
	assert.NotContains(t, string(out), "settee: warning:", "%v", command)
}

func TestCompose(t *testing.T) {
	t.Parallel()
	for file, nodes := range map[string]int{"docker-compose.yml": 3, "docker-compose.single.yml": 1} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			options, err := cli.NewProjectOptions([]string{filepath.Join(root, file)}, cli.WithName("settee"), cli.WithEnv([]string{"COUCHDB_PASSWORD=relax"}))
			require.NoError(t, err)
			project, err := options.LoadProject(t.Context())
			require.NoError(t, err)
			seen := 0
			for name, s := range project.Services {
				if s.Build == nil {
					continue
				}
				seen++
				require.NotNil(t, s.HealthCheck, name)
				var environ []string
				for key, value := range s.Environment {
					require.NotNil(t, value, "%s: %s", name, key)
					environ = append(environ, key+"="+*value)
				}
				accepted(t, environ, s.Command...)
				check := s.HealthCheck.Test
				require.Equal(t, []string{"CMD", "/usr/local/bin/settee", "health"}, []string(check[:3]), name)
				accepted(t, environ, check[2:]...)
				for _, flag := range check[3:] { // so that it finds the port
					assert.Contains(t, s.Command, flag, name)
				}
				assert.Positive(t, s.MemLimit, name)
				assert.Positive(t, s.CPUS, name)
				assert.Positive(t, s.PidsLimit, name)
				assert.Contains(t, s.Ulimits, "nofile", name)
				assert.Equal(t, []string{"ALL"}, s.CapDrop, name)
				assert.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
			}
			assert.Equal(t, nodes, seen)
		})
	}
}

// decode decodes a manifest. A field that its type does not have is an error, and so is a field that appears twice.
func decode[T any](t *testing.T, text []byte) *T {
	t.Helper()
	object := new(T)
	require.NoError(t, yaml.UnmarshalStrict(text, object), "%s", text)
	return object
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "kubernetes.yaml"))
	require.NoError(t, err)
	deployments := map[string]*appsv1.Deployment{}
	policies := map[string]*networkingv1.NetworkPolicy{}
	var service *corev1.Service
	var configuration *corev1.ConfigMap
	var budgets []*policyv1.PodDisruptionBudget
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal(document, &kind))
		switch kind.APIVersion + " " + kind.Kind {
		case "v1 ConfigMap":
			configuration = decode[corev1.ConfigMap](t, document)
		case "v1 Service":
			service = decode[corev1.Service](t, document)
		case "apps/v1 Deployment":
			d := decode[appsv1.Deployment](t, document)
			deployments[d.Labels["role"]] = d
		case "policy/v1 PodDisruptionBudget":
			budgets = append(budgets, decode[policyv1.PodDisruptionBudget](t, document))
		case "networking.k8s.io/v1 NetworkPolicy":
			p := decode[networkingv1.NetworkPolicy](t, document)
			policies[p.Name] = p
		default:
			t.Errorf("unknown kind %v", kind)
		}
	}
	require.Len(t, deployments, 2)
	require.Len(t, budgets, 2)
	require.Len(t, policies, 4)

	// The node starts with the file of the ConfigMap.
	dir := t.TempDir()
	for name, file := range configuration.Data {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(file), 0o600))
	}
	for role, d := range deployments {
		assert.Equal(t, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels, role)
		pod := d.Spec.Template.Spec
		require.Len(t, pod.Containers, 1)
		c := pod.Containers[0]
		var environ []string
		for _, variable := range c.Env {
			environ = append(environ, variable.Name+"="+variable.Value)
		}
		commands := [][]string{c.Args}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe} {
			require.NotNil(t, probe, role)
			if probe.Exec != nil {
				commands = append(commands, probe.Exec.Command[1:])
			}
		}
		for _, command := range commands {
			accepted(t, environ, strings.Split(strings.ReplaceAll(strings.Join(command, "\n"), "/etc/settee", dir), "\n")...)
		}
		assert.True(t, *pod.SecurityContext.RunAsNonRoot, role)
		assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation, role)
		assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, role)
		assert.NotEmpty(t, c.Resources.Limits, role)
		assert.False(t, *pod.AutomountServiceAccountToken, role)
		var volumes []string
		for _, v := range pod.Volumes {
			volumes = append(volumes, v.Name)
		}
		for _, m := range c.VolumeMounts {
			assert.Contains(t, volumes, m.Name, role)
		}
		assert.True(t, slices.ContainsFunc(budgets, func(b *policyv1.PodDisruptionBudget) bool {
			return assert.ObjectsAreEqual(b.Spec.Selector.MatchLabels, d.Spec.Template.Labels)
		}), "a PodDisruptionBudget of %s", role)
	}
	assert.Equal(t, deployments["api-frontend"].Spec.Template.Labels, service.Spec.Selector)

	// The firewall of each role: only frontends accept connections, and only replication nodes open any, except to the
	// store and to name servers.
	deny := policies["settee-deny"].Spec
	assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, deny.PolicyTypes)
	assert.Empty(t, deny.Ingress)
	assert.Empty(t, deny.Egress)
	for role, d := range deployments {
		in, out := 0, 0
		for name, p := range policies {
			applies := true
			for key, value := range p.Spec.PodSelector.MatchLabels {
				applies = applies && d.Spec.Template.Labels[key] == value
			}
			if applies && name != "settee-store" {
				in, out = in+len(p.Spec.Ingress), out+len(p.Spec.Egress)
			}
		}
		assert.Equal(t, role == "api-frontend", in > 0, "%s accepts connections", role)
		assert.Equal(t, role == "replication", out > 0, "%s opens connections", role)
	}
}

// A field that a type does not have is found: the check can fail.
func TestUnknownField(t *testing.T) {
	t.Parallel()
	require.Error(t, yaml.UnmarshalStrict([]byte("apiVersion: v1\nkind: Service\nspec: {prots: []}\n"), new(corev1.Service)))
	file := filepath.Join(t.TempDir(), "compose.yml")
	require.NoError(t, os.WriteFile(file, []byte("services: {a: {image: a, mem_limits: 1g}}\n"), 0o600))
	options, err := cli.NewProjectOptions([]string{file}, cli.WithName("settee"))
	require.NoError(t, err)
	_, err = options.LoadProject(t.Context())
	assert.ErrorContains(t, err, "mem_limits")
}
