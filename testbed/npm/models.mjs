// Objects as JSON on stdin, a list of problems for each on stdout; runs beside its node_modules.

async function problems(item) {
  const [group, version] = item.apiVersion.includes("/") ? item.apiVersion.split("/") : ["", item.apiVersion];
  const home = group === "monitoring.coreos.com" ? "@kubernetes-models/prometheus-operator" : "kubernetes-models";
  const path = [home, group, version].filter(Boolean).join("/");
  const Model = (await import(path))[item.kind];
  try {
    new Model(item).validate();
    return [];
  } catch (error) {
    return [error.message];
  }
}

let text = "";
for await (const part of process.stdin) text += part;
process.stdout.write(JSON.stringify(await Promise.all(JSON.parse(text).map(problems))));
