// Examples of the playground: one story of each proposal, and what a manifest with the expression looks like.

import { toYaml } from './yaml.js';

export const PLACES = [
  { id: 'toleration', title: 'Toleration', field: 'Pod spec.tolerations[].expression', sees: 'taint', proposal: 'KEP-5500' },
  { id: 'affinity', title: 'Node affinity', field: 'nodeSelectorTerms[].matchCELExpressions[]', sees: 'node.labels', proposal: 'KEP-5500' },
  { id: 'device', title: 'Device selector', field: 'DeviceClass spec.selectors[].cel', sees: 'device', proposal: 'DRA' },
  { id: 'devices', title: 'Device constraint', field: 'ResourceClaim constraints[].cel', sees: 'devices', proposal: 'KEP-5254' },
  { id: 'column', title: 'Printer column', field: 'CRD additionalPrinterColumns[].expression', sees: 'self', proposal: 'KEP-4595', schema: true },
  { id: 'rule', title: 'CRD rule', field: 'CRD x-kubernetes-validations[].rule', sees: 'self, oldSelf', proposal: 'Kubernetes', schema: true },
  { id: 'admission', title: 'Admission policy', field: 'ValidatingAdmissionPolicy validations[].expression', sees: 'object, oldObject, params, request', proposal: 'Kubernetes' },
];

const SERVERS = `type: object
properties:
  spec:
    type: object
    properties:
      servers:
        type: array
        items:
          type: object
          properties:
            hosts: {type: array, items: {type: string}}
      replicas: {type: integer}
  status:
    type: object
    properties:
      conditions:
        type: array
        items:
          type: object
          properties:
            type: {type: string}
            status: {type: string}
`;

const grid = Array.from({ length: 4 }, (_, at) => `- driver: mla.example.com\n  attributes: {deviceid: {int: ${at}}, row: {int: ${at >> 1}}, col: {int: ${at & 1}}}`).join('\n') + '\n';

export const EXAMPLES = [
  { title: 'Taints by prefix', place: 'toleration', expression: "taint.key.startsWith('env.example.com/')", input: 'key: env.example.com/staging\nvalue: blue\neffect: NoSchedule\n' },
  { title: 'Kernel version in a taint', place: 'toleration', expression: "taint.key == 'node.example.com/kernel-version' &&\nsemver(taint.value).isGreaterThan(semver('5.15.0'))", input: 'key: node.example.com/kernel-version\nvalue: 6.1.0\neffect: NoSchedule\n' },
  { title: 'Either of two maintenance reasons', place: 'toleration', expression: "taint.key == 'maintenance' && (taint.value == 'security-patch' || taint.value == 'hardware-upgrade')", input: 'key: maintenance\nvalue: hardware-upgrade\neffect: NoSchedule\n' },
  { title: 'Kubelet version by label', place: 'affinity', expression: "semver.compare(node.labels['node.example/kubelet-version'], '>=1.30.0')", input: 'metadata:\n  labels:\n    node.example/kubelet-version: v1.31.2\n    topology.kubernetes.io/rack: us-west-2-a\n' },
  { title: 'Any GPU label', place: 'affinity', expression: "node.labels.exists(k, k.startsWith('gpu.') && node.labels[k] == 'true')", input: "metadata:\n  labels:\n    gpu.nvlink: 'true'\n    zone: a\n" },
  { title: 'Large device', place: 'device', expression: "device.driver == 'mla.example.com' &&\ndevice.capacity['mla.example.com'].memory.isGreaterThan(quantity('40Gi'))", input: 'driver: mla.example.com\nattributes:\n  deviceid: {int: 3}\ncapacity:\n  memory: {value: 80Gi}\n' },
  { title: 'Four devices in a row', place: 'devices', expression: "size(devices) == 4 &&\ndevices.map(d, d.attributes['mla.example.com'].deviceid).max() -\ndevices.map(d, d.attributes['mla.example.com'].deviceid).min() == 3", input: grid },
  { title: 'Hosts of all servers', place: 'column', expression: 'self.spec.servers.map(s, s.hosts.filter(h, h == "prod.example.com"))', schema: SERVERS, input: 'spec:\n  servers:\n  - hosts: [prod.example.com, test.example.com]\n  - hosts: [prod.example.com]\n' },
  { title: 'Ready condition', place: 'column', expression: 'self.status.conditions.exists(c, c.type == "Ready") ?\n  self.status.conditions.filter(c, c.type == "Ready")[0].status : "Unknown"', schema: SERVERS, input: "status:\n  conditions:\n  - {type: Synced, status: 'True'}\n  - {type: Ready, status: 'False'}\n" },
  { title: 'Replicas never shrink', place: 'rule', expression: 'self.spec.replicas >= oldSelf.spec.replicas', schema: SERVERS, input: 'self:\n  spec: {replicas: 3}\noldSelf:\n  spec: {replicas: 5}\n' },
  { title: 'Replica limit from params', place: 'admission', expression: "object.spec.replicas <= params.maxReplicas ||\nrequest.userInfo.username == 'system:admin'", input: 'object:\n  spec: {replicas: 7}\nparams:\n  maxReplicas: 5\nrequest:\n  operation: UPDATE\n  userInfo: {username: alice}\n' },
];

/** The expression in a manifest that can be applied. */
export function manifest(place, expression) {
  const container = [{ name: 'app', image: 'registry.k8s.io/pause:3.10' }];
  switch (place) {
    case 'toleration': return toYaml({ apiVersion: 'v1', kind: 'Pod', metadata: { name: 'example' }, spec: { tolerations: [{ expression }], containers: container } });
    case 'affinity': return toYaml({ apiVersion: 'v1', kind: 'Pod', metadata: { name: 'example' }, spec: { affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [{ matchCELExpressions: [expression] }] } } }, containers: container } });
    case 'device': return toYaml({ apiVersion: 'resource.k8s.io/v1', kind: 'DeviceClass', metadata: { name: 'example.example.com' }, spec: { selectors: [{ cel: { expression } }] } });
    case 'devices': return toYaml({ apiVersion: 'resource.k8s.io/v1', kind: 'ResourceClaim', metadata: { name: 'example' }, spec: { devices: { requests: [{ name: 'devices', exactly: { deviceClassName: 'mla.example.com', allocationMode: 'ExactCount', count: 4 } }], constraints: [{ requests: ['devices'], cel: { expression } }] } } });
    case 'column': return '# In spec.versions[] of a CustomResourceDefinition:\n' + toYaml({ additionalPrinterColumns: [{ name: 'Example', type: 'string', expression }] });
    case 'rule': return '# In the schema of a CustomResourceDefinition, beside properties:\n' + toYaml({ 'x-kubernetes-validations': [{ rule: expression, message: 'why the object is rejected' }] });
    default: return toYaml({ apiVersion: 'admissionregistration.k8s.io/v1', kind: 'ValidatingAdmissionPolicy', metadata: { name: 'example' }, spec: { failurePolicy: 'Fail', matchConstraints: { resourceRules: [{ apiGroups: ['apps'], apiVersions: ['v1'], operations: ['CREATE', 'UPDATE'], resources: ['deployments'] }] }, validations: [{ expression, message: 'why the object is rejected' }] } })
      + '---\n' + toYaml({ apiVersion: 'admissionregistration.k8s.io/v1', kind: 'ValidatingAdmissionPolicyBinding', metadata: { name: 'example' }, spec: { policyName: 'example', validationActions: ['Deny'] } });
  }
}
