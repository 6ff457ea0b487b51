"""Words that mark facts: decisions and tasks in ten languages, programs and units.

Phrases are in lower case, separated by `|` or a line break. In languages that are written with
spaces they match whole words.
"""

from __future__ import annotations

DECISION_PHRASES = """
decided|decision|decisions|decide on|agreed|agree to|settled on|settle on|opted|chose|chosen
we choose|i choose|going with|go with|went with|let's go|let's use|let's keep|let's stick|stick to
stick with|sticking with|we will use|we'll use|we use|i will use|i'll use|will not|won't|must
must not|mustn't|shall|never|always|do not|don't|from now on|instead of|rather than|in favor of
in favour of|no longer|approved|rejected|ruled out|rule out|prefer|preference|conclusion|concluded
resolved to|confirmed|final answer|policy|requirement|constraint|switch to|switched to|switching to
moving to|migrate to|replace with|replaced by|drop support|keep using|standardize on|standardise on
adopt|adopted|the plan is|the rule is|is off limits|only use|by design|choice is|picked|we pick
we will|postponed|deferred|cancelled|canceled|scrapped|shelved|on hold
dropped|moves to|moved to|stays on|stays with|staying with|stay with|superseded by|instead we
verdict|ruling|consensus|signed off|green light|freeze|frozen|deprecate|deprecated
verschoben|zurückgestellt|gestrichen|fällt weg|entfällt|wir werden
entschieden|entscheidung|beschlossen|beschluss|wir nehmen|wir verwenden|wir nutzen|wir bleiben
vereinbart|festgelegt|einigten uns|geeinigt|statt|stattdessen|niemals|immer|nicht mehr|ab jetzt
ab sofort|auf keinen fall|muss|müssen|darf nicht|dürfen nicht|wir setzen auf|ausgewählt|genehmigt
aplazado|cancelado|descartamos|vamos a
decidido|decidimos|decidí|decisión|acordamos|acordado|elegimos|elegido|optamos|vamos a usar
usaremos|usamos|en lugar de|en vez de|nunca|siempre|no se debe|debe|deben|a partir de ahora
nos quedamos con|aprobado|descartado|preferimos
reporté|annulé|abandonné|on va
décidé|décidons|décision|convenu|choisi|choisissons|retenu|optons|opté|on va utiliser|on utilise
nous utiliserons|on garde|on part sur|au lieu de|plutôt que|jamais|toujours|doit|doivent
ne doit pas|désormais|approuvé|rejeté|à partir de maintenant
decidimos|decisão|escolhemos|vamos usar|em vez de|combinado|sempre
deciso|abbiamo deciso|decisione|useremo|scelto|invece di|sempre|d'accordo
решили|решено|решение|договорились|выбрали|будем использовать|вместо|никогда|всегда|нельзя
"""

UNSPACED_DECISION_PHRASES = """
决定|決定|确定使用|确定采用|選擇|选择了|选用|采用|採用|改用|不再|必须|必須|禁止|不要|不得|一律|统一|約定
约定|同意|方针|方針|ことにした|ことにする|ことになった|にします|べき|しない|してはいけ|てはならない|合意|選んだ
承認|却下|結論|结论|の代わりに|而不是|결정|합의|하기로|대신|절대|선택
"""

TASK_PHRASES = """
out of scope|blocked until|not part of|left for|for later|parked|set aside|put off
todo|to-do|to do|fixme|tbd|open task|open tasks|open item|open items|open question|open point
open questions|open points
action item|action items|next step|next steps|next up|remaining|remains to|still to|still need
still needs|still have to|still has to|still open|still missing|still pending|left to do|need to
needs to|have to|has to|needs|pending|outstanding|follow up|follow-up|remember to|don't forget
do not forget|please|waiting for|waiting on|blocked on|blocked by|unresolved|not yet|later we
backlog|deadline|due by|due on|assigned to|by tomorrow|by monday|by tuesday|by wednesday
by thursday|by friday|tomorrow|i want you to|can you|could you|should be done|must be done
make sure|double-check|come back to|revisit|before the release|before we ship|before launch|owed
offen|offene|zu tun|noch zu|noch nicht|aufgabe|aufgaben|nächster schritt|nächste schritte|bitte
müssen noch|muss noch|steht noch aus|ausstehend|warten auf|wartet auf|nicht vergessen|bis morgen
bis montag|bis dienstag|bis mittwoch|bis donnerstag|bis freitag|erledigen|später
pendiente|pendientes|por hacer|falta|faltan|tarea|tareas|próximo paso|siguiente paso|hay que
tenemos que|tiene que|por favor|no olvidar|esperando|queda por|antes del|mañana
à faire|reste à|il reste|il faut|tâche|tâches|prochaine étape|prochaines étapes|en attente
ne pas oublier|penser à|n'oublie pas|s'il te plaît|s'il vous plaît|merci de|pas encore|avant le
pendente|falta|tarefa|próximo passo|precisamos|ainda falta|a fazer
da fare|manca|prossimo passo|bisogna|dobbiamo|in sospeso
нужно|надо|осталось|задача|следующий шаг|не забыть|ожидаем|доделать|пожалуйста
"""

UNSPACED_TASK_PHRASES = """
待办|待辦|待完成|待处理|待處理|下一步|还需要|還需要|还要|尚未|未完成|需要|请|請|记得|記得|别忘|不要忘|任务|任務
待确认|等待|やること|未対応|未完了|残タスク|タスク|残り|次のステップ|次は|する必要|しなければ|してください|忘れず
までに|課題|要確認|宿題|할 일|해야|남은|다음 단계|필요|까지
"""

PROGRAMS = """
git docker docker-compose podman kubectl helm terraform terragrunt pulumi ansible
ansible-playbook vagrant npm npx pnpm yarn bun deno pip pip3 pipx poetry uv uvx pdm hatch conda
mamba python python3 pytest tox nox mypy ruff black flake8 pylint cargo rustc rustup gradle
gradlew mvn javac dotnet nuget msbuild bundle gem rake composer php artisan perl ruby lua
cmake ninja meson bazel gcc g++ clang ld gdb lldb strace ltrace valgrind curl wget ssh scp sftp
rsync tar gzip gunzip unzip zip grep egrep rg awk sed xargs jq yq tee chmod chown chgrp mkdir
rmdir rm cp mv ln ls cat systemctl journalctl service crontab launchctl brew apt apt-get dpkg
dnf yum pacman apk snap psql pg_dump pg_restore mysql mysqldump sqlite3 redis-cli mongo mongosh
mongodump aws gcloud gsutil az flyctl heroku vercel netlify wrangler gh glab openssl gpg
ssh-keygen nginx caddy certbot iptables nft ufw netstat ss lsof nc ping dig nslookup traceroute
tcpdump ffmpeg convert tmux nohup powershell pwsh sudo su doas env eslint prettier tsc vite
webpack jest vitest playwright cypress alembic celery gunicorn uvicorn hermes locust k6
kafka-topics rabbitmqctl vault consul nomad packer skopeo buildah minikube kind k3s argocd flux
virtualenv twine mkdocs sphinx-build protoc buf sqlx diesel prisma knex rclone restic borg
"""

WORDLIKE_PROGRAMS = """
make go find test node java rails flask touch kill killall pkill watch sleep time export source
top less head tail sort cut split open start bash sh zsh echo cd set unset mount umount
date diff patch which install exec bench act just task dd df du ps at code mix iex swift
"""

EXTENSIONS = """
py pyi pyx ipynb js mjs cjs jsx ts tsx vue svelte json jsonl json5 yaml yml toml ini cfg conf
config env properties xml html htm css scss sass less md mdx rst txt csv tsv parquet avro sql
db sqlite sqlite3 rs go java kt kts scala groovy gradle c h cc cpp cxx hpp cs fs vb swift m mm
rb erb php pl lua r jl ex exs erl hs clj dart zig nim sh bash zsh fish ps1 bat cmd dockerfile
tf tfvars hcl proto graphql lock log out err pid sock service timer pem crt key csr pub p12 jks
zip gz tgz tar bz2 xz zst 7z rar whl jar war deb rpm apk dmg exe dll so dylib bin iso img png
jpg jpeg gif svg webp ico pdf doc docx xls xlsx ppt pptx odt mp3 mp4 wav avi mov mkv woff woff2
ttf patch diff bak orig tmp swp map snap template tmpl j2 wasm onnx pt pth safetensors gguf
ckpt npz npy pkl h5 rdb dump
"""

UNITS = """
milliseconds? microseconds? nanoseconds? seconds? secs? minutes? mins? hours? hrs? days? weeks?
months? years? ms µs us ns s h d m min
bytes? bits? [kmgtp]i?b [kmgt]bit/s [kmgt]bps [kmgt]b/s [kmg]hz hz
req/s requests?/s rps qps tps ops/s rows/s msgs?/s fps rpm
rows? users? requests? retries attempts? replicas? nodes? pods? workers? threads? connections?
tokens? items? files? lines? messages? records? tests? pages? partitions? shards? cores? cpus?
px pt em rem dpi km cm mm kg g mg lb mi ft inch(?:es)? °[cf] kwh? mw v mah percent pp bps x
usd eur gbp jpy chf cents? dollars? euros? million billion thousand mio mrd
stunden? minuten? sekunden? tage? wochen? monate? jahre? euro zeilen? nutzer anfragen
horas? minutos? segundos? días? semanas? meses años? filas? usuarios?
heures? minutes? secondes? jours? semaines? mois ans? lignes? utilisateurs?
"""
UNSPACED_UNITS = """
毫秒|秒|分钟|分|小时|時間|天|日|周|週|月|年|元|円|美元|个|個|件|人|行|次|回|台|倍|万|億|条|份|名
초|분|시간|일|개|명|원
"""

STOP_WORDS = """
the a an of to in on at for with from by and or but not no is are was were be been has have had
will would can could should must may it its this that these those we you he she they i our your
his her their them us as if than then when until before after so only all both each any one two
what who which there here out up over into do does did just too also der die das den dem des ein
eine einen einem einer und oder aber nicht kein keine ist sind war wird werden hat haben mit von
zu zum zur für auf im am bei bis nach vor aus wir ihr sie er es ich wie als auch noch nur dass
wenn wer uns le la les un une du de et ou mais pas ne est sont avec pour par sur dans au aux nous
vous il elle que qui se ce cette el los las una y o pero con por para del al en su como más lo è
gli di da per non che si os um uma não em na com и в на не по для что как это до из за от мы
вы он они
"""
"""Function words, which carry no content."""
