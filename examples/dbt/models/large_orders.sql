{{ config(materialized='incremental', incremental_strategy='append') }}
select id, amount
from {{ source('sales', 'orders') }}
where amount >= 30
{% if is_incremental() %}
  and id > (select max(id) from {{ this }})
{% endif %}
